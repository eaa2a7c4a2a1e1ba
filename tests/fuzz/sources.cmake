# What the readers need, below src: little enough for tools/fuzz.sh to compile all of it anew.
set(FEDHPC_FUZZED
    codecs/bits codecs/symbol_coder core/error core/rng core/words data/byte_source data/cifar data/csv data/csv_rows data/idx
    data/jpeg data/libsvm data/mat data/numbers data/unpack data/unpack_cache math/intervals math/kmeans math/lloyd)
set(FEDHPC_FUZZED_READERS idx cifar mat csv libsvm jpeg gzip xz codecs)
