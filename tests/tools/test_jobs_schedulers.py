"""Tests of the job scripts of PBS and Flux, with stand-ins for their commands and the program."""

import json
import re
import sys
import unittest

from test_jobs import COMMANDS, JobCase

FEDHPC = COMMANDS["fedhpc"]
# Runs the command behind a launcher's own options as one rank.
ONE_RANK = 'while [ "${1#/}" = "$1" ]; do shift; done\nexec "$@"\n'


# Trains until it is asked to stop.
LONG_RUN = """#!/bin/bash
[ "$1" != show ] || { echo run.h5; exit 0; }
trap "exit 75" USR1
for _ in {1..300}; do sleep 0.1; done
"""
UNTOLD = "the scheduler does not tell the time that is left; nothing is asked to stop before the job's end\n"
TOO_SHORT = "the job's time (60 s) is not above FEDHPC_WARNING (120 s); nothing is run\n"


class Pbs(JobCase):
    commands = {
        "fedhpc": FEDHPC, "mpirun": f'echo "mpirun $*" >> calls.log\nshift 4\n{ONE_RANK}',
        "mpiexec": f'echo "mpiexec $*" >> calls.log\n{ONE_RANK}',
        "qsub": 'echo "qsub $* FEDHPC_RESTARTS=$FEDHPC_RESTARTS" >> calls.log\n',
        # Does not answer in the looks whose numbers are in FAKE_DEAF.
        "qstat": 'echo "qstat $*" >> calls.log\nlook=$(grep -c ^qstat calls.log)\n'
                 'case " ${FAKE_DEAF:-} " in *" $look "*) exit 1 ;; esac\n'
                 'cat <<END\nJob Id: 7.host\n    Job_Name = fedhpc\n    job_state = ${FAKE_STATE-R}\n    queue = workq\n'
                 '    project = ${FAKE_PROJECT-_pbs_project_default}\n    Resource_List.filesystems = home:eagle\n'
                 '    Resource_List.mem = 8gb\n    Resource_List.mpiprocs = 4\n    Resource_List.nacc = 2\n'
                 '    Resource_List.ncpus = 4\n    Resource_List.nodect = 2\n    Resource_List.place = scatter\n'
                 '    Resource_List.select = 2:ncpus=2:\n\tmpiprocs=2:nacc=1\n    Resource_List.storage = scratch/ab12\n'
                 '    Resource_List.walltime = ${FAKE_LIMIT-04:00:00}\n'
                 '    resources_used.walltime = 00:30:00\n'
                 '    Variable_List = PBS_O_HOME=/home/u,FEDHPC_RUN=run.ini,OMPI_MCA_b\n\ttl=tcp\\,self,LD_LIBRARY_PATH=/a:/b,'
                 'GONE=1\nEND\n',
    }

    def job(self, name="preemptible", arguments="run.ini --train.lr='0.1'", **variables):
        (self.folder / "nodes").write_text("a\na\nb\nb\n")
        return self.script(f"{name}.pbs", PBS_O_WORKDIR=str(self.folder), PBS_NODEFILE="nodes", PBS_JOBID="7.host",
                           PBS_JOBNAME="fedhpc", FEDHPC_RUN=arguments, **variables)

    def test_ranks_are_those_of_the_nodes(self):
        for name in ("single_node", "multi_node", "preemptible"):
            code, said = self.job(name)
            self.assertEqual(code, 0, said)
        self.assertEqual(len(self.calls("mpirun")), 3)
        self.assertIn("mpirun -n 4 --hostfile nodes --bind-to core ", self.calls("mpirun")[0])
        self.assertEqual(set(self.calls("fedhpc")), {"fedhpc run run.ini --go-on --train.lr=0.1"})
        self.job("multi_node", FEDHPC_LAUNCHER="mpiexec")
        self.assertIn("mpiexec -n 4 --ppn 2 ", self.calls("mpiexec")[0])

    def test_it_is_asked_to_stop_in_time_and_submits_itself(self):
        (self.folder / "bin/fedhpc").write_text(LONG_RUN)
        for name, submitted in (("single_node", 0), ("preemptible", 1)):
            code, said = self.job(name, FAKE_LIMIT="00:30:03", FEDHPC_WARNING="2", FEDHPC_RESTARTS="3")
            self.assertEqual(code, 75, said)
            self.assertIn("asked to stop", said)
            self.assertEqual(len(self.calls("qsub")), submitted)
        call, = self.calls("qsub")
        for part in ("-N fedhpc", "-q workq", "jobs/preemptible.pbs", "FEDHPC_RESTARTS=4", "FEDHPC_RUN"):
            self.assertIn(part, call)
        self.assertEqual(re.findall(r"-l (\S+)", call), [
            "filesystems=home:eagle", "place=scatter", "select=2:ncpus=2:mpiprocs=2:nacc=1", "storage=scratch/ab12",
            "walltime=00:30:03"], "sums over chunks follow from select")
        for option in (" -A ", " -P "):
            self.assertNotIn(option, call)

    def test_the_next_job_is_the_same_projects(self):
        self.job(FAKE_CODE="75", FAKE_PROJECT="climate")
        self.assertIn(" -P climate ", self.calls("qsub")[0])

    def test_the_next_job_has_the_variables_of_this_one(self):
        self.job(FAKE_CODE="75", OMPI_MCA_btl="tcp,self", LD_LIBRARY_PATH="/a:/b", OTHER="1", FEDHPC_DATA="data")
        names = re.search(r" -v (\S+) ", self.calls("qsub")[0])[1].split(",")
        self.assertEqual(names, sorted({"FEDHPC", "FEDHPC_DATA", "FEDHPC_HOME", "FEDHPC_RESTARTS", "FEDHPC_RUN",
                                        "LD_LIBRARY_PATH", "OMPI_MCA_btl"}))

    def test_it_is_not_submitted_again_without_its_resources(self):
        """The first look is for the time that is left, the second for the job's state."""
        for deaf, submitted in (("3 4", 1), ("3 4 5 6 7", 0)):
            (self.folder / "calls.log").unlink(missing_ok=True)
            code, said = self.job(FAKE_CODE="75", FAKE_DEAF=deaf)
            self.assertEqual((code, len(self.calls("qsub"))), (75, submitted), said)
            self.assertEqual("qstat does not tell the job's resources; it is not submitted again without them\n" in said,
                             not submitted)
            for call in self.calls("qsub"):
                self.assertIn(" -l select=2:ncpus=2:mpiprocs=2:nacc=1 ", call)
                self.assertIn(" -q workq ", call)

    def test_the_time_that_is_left_is_asked_for_again(self):
        code, said = self.job("single_node", FAKE_DEAF="1 2 3 4 5")
        self.assertEqual((code, said.count(UNTOLD)), (0, 1), said)
        code, said = self.job("single_node", FAKE_LIMIT="")
        self.assertEqual((code, said.count(UNTOLD)), (0, 0), "it has no limit")
        (self.folder / "calls.log").unlink()
        (self.folder / "bin/fedhpc").write_text(LONG_RUN)
        code, said = self.job("single_node", FAKE_DEAF="1 2", FAKE_LIMIT="00:30:03", FEDHPC_WARNING="02")
        self.assertEqual((code, "asked to stop" in said), (75, True), said)

    def test_a_job_that_is_too_short_is_refused(self):
        for name in ("single_node", "preemptible"):
            code, said = self.job(name, FAKE_LIMIT="00:01:00")
            self.assertEqual((code, said), (2, f"fedhpc: {TOO_SHORT}"))
        self.assertEqual(self.calls("mpirun") + self.calls("qsub"), [])
        (self.folder / "bin/fedhpc").write_text(LONG_RUN)
        code, said = self.job(FAKE_LIMIT="00:30:03")  # 3 s are left of a time that is long enough
        self.assertEqual((code, len(self.calls("qsub"))), (75, 1), said)

    def test_others_are_not_submitted_again(self):
        for variables, code in (({"FAKE_CODE": "2"}, 2), ({"FAKE_CODE": "75", "FAKE_STATE": "E"}, 75),
                                ({"FAKE_CODE": "75", "FEDHPC_RESTARTS": "100"}, 75)):
            self.assertEqual(self.job(**variables)[0], code)
        self.assertEqual(self.calls("qsub"), [])

    def test_nothing_to_run(self):
        code, said = self.job(arguments="")
        self.assertEqual(code, 2)
        self.assertIn("qsub -v FEDHPC_RUN jobs/NAME.pbs", said)


class Flux(JobCase):
    commands = {
        "fedhpc": FEDHPC,
        "flux": 'echo "flux $*" >> calls.log\n'
                'case $* in\n'
                '*"resource list"*ncores*) echo 16 ;;\n*"resource list"*ngpus*) echo 2 ;;\n'
                '"job timeleft") [ "$(grep -c "^flux job timeleft" calls.log)" -gt "${FAKE_SILENT:-0}" ] || exit 1\n'
                'echo "${FAKE_LEFT:-4294967295}" ;;\n'
                f'submit*) shift; printf "%s\\n" "$@" > submitted; echo f7 ;;\n'
                '"job attach f7") mapfile -t words < submitted; set -- "${words[@]}"\n'
                'while [ "${1#/}" = "$1" ]; do shift; done; "$@" & echo $! > pid; wait $!; code=$?\n'
                'while kill -0 "$(cat pid)" 2>/dev/null; do wait "$(cat pid)"; code=$?; done; exit $code ;;\n'
                '"job kill"*) kill -USR1 "$(cat pid)" && echo USR1 >> taken ;;\n'
                '"--parent jobs"*) echo "${FAKE_STATE-RUN}" ;;\n'
                f'python*) shift; exec "{sys.executable}" "$@" ;;\n'
                '"--parent job info"*) [ -z "${FAKE_LONER:-}" ] || exit 1\n'
                'case ${FAKE_SHAPE:-slots} in nodes) echo \'{"resources": [{"type": "node", "count": 2, "exclusive": true,\'\n'
                'echo \'"with": [{"type": "slot", "count": 3, "label": "task", "with": [{"type": "core", "count": 2},\'\n'
                'echo \'{"type": "gpu", "count": 1}]}]}]}\' ;;\n'
                '*) echo \'{"resources": [{"type": "slot", "count": 4, "with": [{"type": "core", "count": 1}], "label": "task"}],\'\n'
                'echo \'"environment": {"FEDHPC_RESTARTS": "3", "A": "b"}, "x": 1}\' ;;\nesac ;;\n'
                '"--parent job submit") cat >> resubmitted ;;\nesac\n',
    }

    def job(self, name="preemptible", *arguments, **variables):
        return self.script(f"{name}.flux.sh", *(arguments or ("run.ini", "--train.lr=0.1")), FLUX_ENCLOSING_ID="f1",
                           **variables)

    def test_ranks_are_the_slots_that_were_asked_for(self):
        for name in ("single_node", "multi_node", "preemptible"):
            code, said = self.job(name)
            self.assertEqual(code, 0, said)
        self.assertIn("flux submit -n 4 -c 1 -o cpu-affinity=per-task ", self.calls("flux submit")[0])
        self.assertEqual(set(self.calls("fedhpc")), {"fedhpc run run.ini --go-on --train.lr=0.1"})
        self.assertNotIn(" -g ", self.calls("flux submit")[0], "whole nodes come with GPUs that nobody asked for")
        self.job("multi_node", FAKE_SHAPE="nodes")
        self.assertIn("flux submit -n 6 -c 1 -o cpu-affinity=per-task -g 1 -o gpu-affinity=per-task ", self.calls("flux submit")[-1])

    def test_ranks_are_the_cores_where_the_parent_does_not_say(self):
        code, said = self.job("single_node", FAKE_LONER="1")
        self.assertEqual(code, 0, said)
        self.assertIn("flux submit -n 16 -c 1 -o cpu-affinity=per-task -g 1 ", self.calls("flux submit")[-1])

    def test_it_is_asked_to_stop_in_time_and_submits_itself(self):
        (self.folder / "bin/fedhpc").write_text(LONG_RUN)
        code, said = self.job(FAKE_LEFT="3", FEDHPC_WARNING="2", FEDHPC_RESTARTS="3")
        self.assertEqual(code, 75, said)
        self.assertIn("asked to stop", said)
        self.assertEqual(set(self.calls("flux job kill")), {"flux job kill --signal=SIGUSR1 f7"})
        self.assertEqual((self.folder / "taken").read_text(), "USR1\n", "called again until the run is there, taken once")
        self.assertEqual(json.loads((self.folder / "resubmitted").read_text()),
                         {"environment": {"FEDHPC_RESTARTS": "4", "A": "b"}, "x": 1, "resources": [
                             {"type": "slot", "count": 4, "with": [{"type": "core", "count": 1}], "label": "task"}]})

    def test_others_are_not_submitted_again(self):
        for variables, code in (({"FAKE_CODE": "1"}, 1), ({"FAKE_CODE": "75", "FAKE_STATE": "CLEANUP"}, 75)):
            self.assertEqual(self.job(**variables)[0], code)
        self.assertFalse((self.folder / "resubmitted").exists())

    def test_the_time_that_is_left_is_asked_for_again(self):
        for silent, told in (("2", 0), ("5", 1)):
            (self.folder / "calls.log").unlink(missing_ok=True)
            code, said = self.job(FAKE_SILENT=silent)
            self.assertEqual((code, said.count(UNTOLD)), (0, told), said)

    def test_a_job_that_is_too_short_is_refused(self):
        code, said = self.job(FAKE_LEFT="60")
        self.assertEqual((code, said, self.calls("flux submit")), (2, f"fedhpc: {TOO_SHORT}", []))
        self.assertFalse((self.folder / "resubmitted").exists())


if __name__ == "__main__":
    unittest.main()
