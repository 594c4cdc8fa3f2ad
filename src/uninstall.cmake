# Remove what the last cmake --install of this build tree has written, and then
# the directories called snowshed that are empty.
#
#   cmake -DMANIFEST=build/install/install_manifest.txt -P src/uninstall.cmake

if(NOT EXISTS "${MANIFEST}")
  message(FATAL_ERROR "Nothing was installed from this build: there is no ${MANIFEST}")
endif()

file(STRINGS "${MANIFEST}" files)
foreach(file IN LISTS files)
  set(path "$ENV{DESTDIR}${file}")
  if(EXISTS "${path}" OR IS_SYMLINK "${path}")
    message(STATUS "Removing ${path}")
    file(REMOVE "${path}")
  endif()
endforeach()

# Only directories with this name; others are shared.
foreach(file IN LISTS files)
  get_filename_component(dir "$ENV{DESTDIR}${file}" DIRECTORY)
  get_filename_component(name "${dir}" NAME)
  file(GLOB rest "${dir}/*")
  if(name STREQUAL "snowshed" AND IS_DIRECTORY "${dir}" AND rest STREQUAL "")
    file(REMOVE_RECURSE "${dir}")
  endif()
endforeach()
