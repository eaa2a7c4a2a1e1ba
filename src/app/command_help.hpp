#pragma once

namespace fedhpc {

struct CommandHelp {
  const char* name;
  const char* text;
};

/// `fedhpc help COMMAND` prints these; the keys that may change come behind that of resume.
constexpr CommandHelp kCommandHelp[] = {
    {"run", R"(fedhpc run CONFIG.ini [--force|--go-on] [--section.key=value ...]
  Trains as the configuration says and writes the result file run.output; the command line
  wins over the file, and where it gives a key twice, the last counts. Under mpirun it runs
  on several ranks: mpirun -n 4 fedhpc run CONFIG.ini (tools/mpi_environment.sh: more than cores).
  A line base = OTHER.ini ahead of the first section takes over the keys of that file, over
  which the file's own win; its path is relative to the file that has the line.
  Keys of one method may stand in [algorithm.METHOD] or be given as --algorithm.METHOD.key=value;
  they act if that method is chosen. Plain keys algorithm.* of a file that names another method
  than the command line are left out, but those that mean the same in every method: server.*,
  codec, codec_fraction, codec_levels, codec_rank, downlink_codec, error_feedback, k, weighting.
  An earlier result RUN.h5 gets the name RUN.old1.h5 (or the next number), its checkpoints
  theirs beside it; with --force the new one takes its place. With --go-on the same command
  begins, goes on from the newest checkpoint as resume does, or finds the run complete.
  Exit code 0: done; 2: refused before the first round, nothing was written; 1: failed later;
  75: interrupted by a signal and resumable.
  `fedhpc help run.`, with the dot, lists its keys run.*.
)"},
    {"resume", R"(fedhpc resume RUN.h5|RUN.ckpt.N.h5 [CONFIG.ini] [--section.key=value ...]
  Goes on from the newest checkpoint beside RUN.h5, or from the one given (RUN.h5 is not
  needed then), on any number of ranks. RUN.h5 is replaced by one that holds the rounds up
  to the checkpoint; --run.output=OTHER.h5 leaves it as it is. A complete run is extended
  with a larger run.rounds. A complete result, or newer checkpoints, whose rounds the given
  checkpoint lacks get the names RUN.old1.h5 and RUN.old1.ckpt.N.h5, as with run.
  With CONFIG.ini the run goes on as that file says now; where it differs in a key that may
  not change, all such keys are named and nothing is done. Its run.output does not count.
  SIGTERM, SIGINT, SIGUSR1 and SIGHUP end a run after its round with a checkpoint and exit code 75;
  a second signal ends it at once with 1. run.checkpoint_every says how often a run saves
  itself otherwise.
  Keys that may change:
)"},
    {"plan", R"(fedhpc plan CONFIG.ini [--json|--series] [--ranks N] [--section.key=value ...]
  Trains a few steps to be timed, of all participants where the server works between them. It
  tells clients and memory of a rank, bytes of a participant (and of an edge) in a round,
  seconds of a round, values of sample gradients. Under mpirun it
  plans for as many ranks, with --ranks for those of a machine that is not there: how even their
  work would be (balance: mean over maximum, without and with moves), and their memory.
  Seconds are of the participants: absent clients that train as well (training or learn = all) come on top.
  Seconds and values of sample gradients take each local step for as much work as the first, with
  what a method computes besides: too much for fedala and scaffold (control = gradient) where a
  client takes many steps.
  Bytes that change from round to round (some codecs', fedselect's) are those of a third round of
  the client with the most samples, alone, with one local step a round: a run's may differ much. A
  note says so where the second's are others. Where a round has several cohorts (hierfavg's
  edge_round), they are of a client in all of them. What absent or new clients fetch beside the
  participants (fedcomloc, pfedsop, pfedme with training = all, fedala with learn = all) is not in
  the bytes.
  With --json also config, the whole configuration as the result file would have it, metrics, the
  names of its series that may have values, and digests of data, model file and foreign code
  (docs/semantics.md).
  With --series instead the series of a run that may have values, the method's own last: a name, a
  tab, its unit, a tab and its meaning a line. The result file has more, which stay NaN.
)"},
    {"list", R"(fedhpc list [algorithms|models|datasets|partitioners|factorisations|codecs]
            [--run.plugin=FILE,...]
  What there is: a name, a tab and a sentence a line; without a kind, the names of all.
  With --run.plugin also what these plug-ins add.
)"},
    {"show", R"(fedhpc show model MODEL.h5|CONFIG.ini [--section.key=value ...]
  The layers of a configuration's model, or of a model file: the values of a sample behind each,
  its parameters, and the multiplications and additions of a forward pass for one sample.

fedhpc show config CONFIG.ini [KEY] [--section.key=value ...]
  The whole configuration, with base files, the command line and defaults, as the result file would
  have it, or what KEY is in it (run.output).

fedhpc show run RUN.h5
  How a run has ended, or that it has not, its rounds, its start and its newest checkpoint.
)"},
    {"help", R"(fedhpc help COMMAND|NAME|KEY|SECTION|keys [--run.plugin=FILE,...]
  A command, an algorithm (with its keys), a model, a data set, a key (train.lr, or lr), the
  keys of a section (train), or all keys. fedhpc COMMAND --help does the same for a command.
)"},
    {"export", R"(fedhpc export RUN.h5 --csv DIR
  Writes rounds and clients as CSV files.
)"},
};

}  // namespace fedhpc
