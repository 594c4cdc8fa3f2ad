# Turn the Lua scripts into a C file: cmake -DOUT= -DSCRIPTS= -P.
#
# The text of a script is prelude.lua, then lock.lua for lock_*.lua (and
# lock_counter.lua for those that use the counter), else entry.lua, and its own, as the
# body of a function; Redis knows it by its SHA-1. A line behind it returns the number
# of the call, which is the last of ARGV, with the reply, so that a client whose connection has got out of step (a server or proxy has
# doubled a reply) does not take it for the answer to another call. The number is
# not taken out of ARGV, which would cost 4 % of a lock's acquire and release: a
# script must not conclude anything from the length of ARGV.
#
# The texts are an array in the order of enum shed_script; the file does not
# compile if one of the two has what the other has not.
# They are bytes, not literals: C promises no literal of more than 4095 characters.

file(READ ${CMAKE_CURRENT_LIST_DIR}/prelude.lua prelude)
file(READ ${CMAKE_CURRENT_LIST_DIR}/entry.lua entry)
file(READ ${CMAKE_CURRENT_LIST_DIR}/lock.lua lock)
file(READ ${CMAKE_CURRENT_LIST_DIR}/lock_counter.lua counter)
set(arrays "")
set(rows "")
list(LENGTH SCRIPTS count)
foreach(file ${SCRIPTS})
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} body)
  if(name MATCHES "^lock_(acquire|advance)$")
    set(subject "${lock}${counter}")
  elseif(name MATCHES "^lock_")
    set(subject "${lock}")
  else()
    set(subject "${entry}")
  endif()
  string(CONCAT text "${prelude}" "${subject}" "local function reply()\n"
    "${body}" "end\n"
    "return {ARGV[#ARGV], (reply())}\n")
  string(SHA1 sha1 "${text}")
  string(HEX "${text}" hex)
  if(hex MATCHES "^(..)*[89a-f].(..)*$")
    message(FATAL_ERROR "${file}: a script must be ASCII")
  endif()
  string(REGEX REPLACE "(..)" "0x\\1, " bytes "${hex}")
  string(APPEND arrays
    "static const char ${name}[] = {\n    ${bytes}0};\n\n")
  string(TOUPPER ${name} row)
  string(APPEND rows
    "    [SHED_SCRIPT_${row}] = {\"${name}\", ${name}, sizeof(${name}) - 1,\n"
    "     \"${sha1}\"},\n")
endforeach()
file(WRITE ${OUT} "/* Made by embed.cmake. */
#include \"wire/script.h\"

${arrays}const struct shed_script_text shed_script_texts[SHED_SCRIPTS] = {
${rows}};

_Static_assert(${count} == SHED_SCRIPTS,
               \"a script without an enumerator of enum shed_script, or the \"
               \"other way round\");
")
