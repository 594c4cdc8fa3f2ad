# Turn the files of the page into a C file: cmake -DOUT= -DFILES= -DCHART= -P.
#
# Any bytes may be in them. The path at which a file is served is its name, but
# "/" for index.html, and "/chart.js" for CHART, wherever that is from.

# What a browser has to be told, by the end of the name.
set(type_html "text/html; charset=utf-8")
set(type_css "text/css; charset=utf-8")
set(type_js "text/javascript; charset=utf-8")
set(type_svg "image/svg+xml")

set(arrays "")
set(rows "")
set(number 0)
foreach(file ${FILES} ${CHART})
  get_filename_component(name ${file} NAME)
  get_filename_component(end ${file} LAST_EXT)
  string(SUBSTRING "${end}" 1 -1 end)
  if(NOT DEFINED type_${end})
    message(FATAL_ERROR "${file}: the content type of .${end} is not known to "
      "embed.cmake")
  endif()
  set(path "/${name}")
  if(name STREQUAL "index.html")
    set(path "/")
  elseif(file STREQUAL CHART)
    set(path "/chart.js")
  endif()
  file(READ ${file} hex HEX)
  file(SHA256 ${file} tag)
  string(SUBSTRING ${tag} 0 16 tag)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
  # a line of 1 MB is more than an editor or a compiler's message bears
  string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)" "\\1\n"
    bytes "${bytes}")
  string(APPEND arrays
    "static const unsigned char file_${number}[] = {\n${bytes}};\n\n")
  string(APPEND rows
    "    {\"${path}\", \"${type_${end}}\", \"\\\"${tag}\\\"\",\n"
    "     file_${number}, sizeof(file_${number})},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE ${OUT} "/* Made by embed.cmake. */
#include \"page.h\"

#include <string.h>

${arrays}static const struct page_file files[] = {
${rows}};

const char page_policy[] =
    \"default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; \"
    \"frame-ancestors 'none'\";

const struct page_file *page_find(const char *path)
{
    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++)
        if (strcmp(files[i].path, path) == 0)
            return &files[i];
    return NULL;
}
")
