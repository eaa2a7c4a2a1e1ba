# Each reader on its seeds, of the library's own objects: a source that sources.cmake lacks is missing here as well.
include("${CMAKE_CURRENT_LIST_DIR}/sources.cmake")
list(JOIN FEDHPC_FUZZED "|" _sources)
add_library(fuzz_replay OBJECT fuzz/replay.cpp)
foreach(_reader IN LISTS FEDHPC_FUZZED_READERS ITEMS model)
  add_executable(replay_${_reader} fuzz/fuzz_${_reader}.cpp $<TARGET_OBJECTS:fuzz_replay>)
  target_include_directories(replay_${_reader} PRIVATE "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/src"
                             "${PROJECT_SOURCE_DIR}/tests")
  if(_reader STREQUAL "model")
    target_link_libraries(replay_model PRIVATE fedhpc)
  else()
    target_sources(replay_${_reader} PRIVATE "$<FILTER:$<TARGET_OBJECTS:fedhpc>,INCLUDE,/(${_sources})\\.cpp\\.o$>")
    target_link_libraries(replay_${_reader} PRIVATE fedhpc_options fedhpc_torch ZLIB::ZLIB LibLZMA::LibLZMA JPEG::JPEG)
  endif()
  set_target_properties(replay_${_reader} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  fedhpc_register(NAME fuzz_seeds.${_reader} COMMAND $<TARGET_FILE:replay_${_reader}>
                                                     "${PROJECT_SOURCE_DIR}/tests/fuzz/seeds/${_reader}")
endforeach()
