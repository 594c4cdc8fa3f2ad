# Turn the Lua scripts into a C file: cmake -DOUT= -DPRELUDE= -DSCRIPTS= -P.
#
# The text of a script is PRELUDE and its own, byte for byte; its SHA-1 is by
# which Redis knows it. Bytes, not literals: C promises no literal of more than
# 4095 characters.

file(READ ${PRELUDE} prelude)
set(arrays "")
set(rows "")
foreach(file ${SCRIPTS})
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} body)
  string(CONCAT text "${prelude}" "${body}")
  string(SHA1 sha1 "${text}")
  string(HEX "${text}" hex)
  if(hex MATCHES "^(..)*[89a-f].(..)*$")
    message(FATAL_ERROR "${file}: a script is ASCII")
  endif()
  string(REGEX REPLACE "(..)" "0x\\1, " bytes "${hex}")
  string(APPEND arrays
    "static const char ${name}[] = {\n    ${bytes}0};\n\n")
  string(APPEND rows
    "    {\"${name}\", ${name}, sizeof(${name}) - 1,\n     \"${sha1}\"},\n")
endforeach()
file(WRITE ${OUT} "/* Made by embed.cmake. */
#include \"redis/script.h\"

${arrays}const struct shed_script_text shed_script_texts[] = {
${rows}};
")
