# fedhpc_add_test(NAME <name> SOURCES <files> [RANKS <n>...] [LABELS <labels>...] [TIMEOUT <s>]
#                 [LIBRARIES <targets>...] [TURNS <n>...])
#
# Builds one GoogleTest binary and registers it once per number of ranks (1: started directly, no
# launcher), with labels ranks_<n>, a time-out and a processor count, so that `ctest -j` does not
# oversubscribe the machine and `ctest -L ranks_4` selects by ranks. With TURNS a single test runs on one of
# these numbers of ranks in the short suite, 0 for none (tests/support/turns.hpp), on each of RANKS else.
function(fedhpc_add_test)
  cmake_parse_arguments(arg "" "NAME;TIMEOUT" "SOURCES;RANKS;LABELS;LIBRARIES;TURNS" ${ARGN})
  if(NOT arg_RANKS)
    set(arg_RANKS 1)
  endif()
  add_executable(${arg_NAME} ${arg_SOURCES})
  target_link_libraries(${arg_NAME} PRIVATE fedhpc_test_main ${arg_LIBRARIES})
  target_include_directories(${arg_NAME} PRIVATE "${PROJECT_SOURCE_DIR}/tests" "${PROJECT_SOURCE_DIR}/src")
  if("fedhpc_test_support" IN_LIST arg_LIBRARIES)
    target_precompile_headers(${arg_NAME} REUSE_FROM fedhpc_test_support)
  endif()
  set_target_properties(${arg_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  foreach(_ranks IN LISTS arg_RANKS)
    fedhpc_register(NAME ${arg_NAME}.ranks_${_ranks} RANKS ${_ranks} TIMEOUT "${arg_TIMEOUT}"
                    LABELS ${arg_LABELS} COMMAND $<TARGET_FILE:${arg_NAME}>)
    if(arg_TURNS)
      list(JOIN arg_TURNS " " _turns)
      set_property(TEST ${arg_NAME}.ranks_${_ranks} APPEND PROPERTY ENVIRONMENT "FEDHPC_TEST_TURNS=${_turns}")
    endif()
  endforeach()
endfunction()

# What takes a minute or more, the longest first but for one that needs room. ctest starts it before all else, so that
# nothing long is left at the end. Tests of one cluster or network follow one another.
set(FEDHPC_LONG_TESTS app_faults lint.naming slurm_requeue slurm_signals slurm_jobs app_memory docs.commands conformance_test.ranks_1
    algorithms_test.ranks_1 device_test.ranks_4 device_late.ranks_2 lint.headers netns_hosts netns_same_results netns_wire_bytes netns_cut_link
    app_same_bits algorithms_test.ranks_4 device_test.ranks_1 harness install_wheel python_imported_models
    python_mutated_models app_kill_resume python_killed tools_reproduce tools_sweep_halving app_command_line
    algorithms_test.ranks_2 conformance_test.ranks_3 conformance_test.ranks_4 conformance_test.ranks_2 python_models
    device_test.ranks_2 python_methods tools_reproduce_slurm app_signals campaign_kills campaign_races campaign_signals
    campaign_configs campaign_files)

# fedhpc_register(NAME <name> COMMAND <command>... [RANKS <n>] [LABELS <labels>...] [TIMEOUT <s>])
# Registers any command as a test, under the launcher when RANKS is above 1. The label "long" keeps it out of the
# short suite (tools/test.sh).
function(fedhpc_register)
  cmake_parse_arguments(arg "" "NAME;RANKS;TIMEOUT" "COMMAND;LABELS" ${ARGN})
  if(NOT arg_RANKS)
    set(arg_RANKS 1)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  set(_launcher "")
  if(arg_RANKS GREATER 1)
    set(_launcher "${MPIEXEC_EXECUTABLE}" ${MPIEXEC_NUMPROC_FLAG} ${arg_RANKS})
  endif()
  add_test(NAME ${arg_NAME} COMMAND ${_launcher} ${arg_COMMAND}
           WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
  set_tests_properties(${arg_NAME} PROPERTIES
    LABELS "ranks_${arg_RANKS};${arg_LABELS}" TIMEOUT ${arg_TIMEOUT} PROCESSORS ${arg_RANKS}
    SKIP_RETURN_CODE 77 ENVIRONMENT "${FEDHPC_TEST_ENVIRONMENT}")
  list(FIND FEDHPC_LONG_TESTS ${arg_NAME} _place)
  if(_place GREATER -1)
    math(EXPR _cost "10000 - ${_place}")  # seconds measured before count for all others
    set_tests_properties(${arg_NAME} PROPERTIES COST ${_cost})
  endif()
endfunction()
