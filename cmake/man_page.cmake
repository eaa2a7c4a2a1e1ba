# Writes the manual page from what the program says of itself:
#   cmake -DPROGRAM=fedhpc -DOUTPUT=fedhpc.1 -DVERSION=1.2.3 -P man_page.cmake
function(ask result)
  execute_process(COMMAND "${PROGRAM}" ${ARGN} OUTPUT_VARIABLE _said RESULT_VARIABLE _code)
  if(NOT _code EQUAL 0)
    message(FATAL_ERROR "${PROGRAM} ${ARGN} ended with ${_code}")
  endif()
  # As it stands: no escapes, no line that starts a request, and minus signs that can be copied.
  string(REPLACE "\\" "\\e" _said "${_said}")
  string(REPLACE "-" "\\-" _said "${_said}")
  string(REGEX REPLACE "(^|\n)([.'])" "\\1\\\\&\\2" _said "${_said}")
  set(${result} "${_said}" PARENT_SCOPE)
endfunction()

ask(_usage help)
set(_page ".TH FEDHPC 1 \"\" \"fedhpc ${VERSION}\" \"User Commands\"\n.SH NAME
fedhpc \\- simulator of personalized and communication\\-compressed federated learning
.SH SYNOPSIS\n.nf\n${_usage}.fi\n.SH COMMANDS\n")
string(REGEX MATCHALL "fedhpc [a-z]+" _commands "${_usage}")
list(TRANSFORM _commands REPLACE "fedhpc " "")
list(REMOVE_DUPLICATES _commands)
foreach(_command IN LISTS _commands)
  ask(_said help ${_command})
  string(APPEND _page ".SS fedhpc ${_command}\n.nf\n${_said}.fi\n")
endforeach()
ask(_keys help keys)
string(APPEND _page ".SH KEYS\nEach stands in a section of the configuration, or on the command line as
\\-\\-section.key=value.\n.nf\n${_keys}.fi\n")
string(APPEND _page ".SH ENVIRONMENT
.TP\n.B FEDHPC_DATA\nfolder of the data sets where data.dir is not given
.TP\n.B FEDHPC_CACHE\nfolder of unpacked data; off: none are kept
.TP\n.B OMP_NUM_THREADS\nthreads of a rank [1]\n")
file(WRITE "${OUTPUT}" "${_page}")
