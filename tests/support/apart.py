"""One job whose ranks get different arguments."""

import shlex


def apart(mpiexec, program, *arguments_by_rank):
    """The command line. (The launcher's own way, parts between `:`, ends Open MPI 5.0.7's by SIGSEGV.)"""
    cases = " ".join(f"{rank}) exec {shlex.join([str(program), *arguments])};;"
                     for rank, arguments in enumerate(arguments_by_rank))
    script = f"case ${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}} in {cases} esac"
    return [mpiexec, "-n", str(len(arguments_by_rank)), "sh", "-c", script]
