# Run by CPack between staging and packing: what only a Debian package has, as
# Debian's policy wants it: a licence and a changelog, compressed manual pages,
# static libraries without symbols for debuggers.

string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC) # or SOURCE_DATE_EPOCH
set(changelog "snowshed (${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) \
unstable; urgency=medium

  * See VERSIONS.md of the sources.

 -- ${CPACK_PACKAGE_CONTACT}  ${date}
")

foreach(component IN LISTS CPACK_COMPONENTS_ALL)
  string(TOUPPER ${component} id)
  set(root ${CPACK_TEMPORARY_DIRECTORY}/${component}/usr)
  set(doc ${root}/share/doc/${CPACK_DEBIAN_${id}_PACKAGE_NAME})
  set(made ${CPACK_TEMPORARY_DIRECTORY}/made)
  configure_file(${CPACK_SNOWSHED_LICENSE} ${made}/copyright COPYONLY)
  file(WRITE ${made}/changelog.Debian "${changelog}")
  file(COPY ${made}/copyright ${made}/changelog.Debian DESTINATION ${doc}
    FILE_PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
  execute_process(COMMAND find ${root} -type d -exec chmod 755 {} + # whatever umask is
    COMMAND_ERROR_IS_FATAL ANY)
  file(GLOB texts ${doc}/changelog.Debian ${root}/share/man/man*/*)
  execute_process(COMMAND gzip -9nf ${texts} COMMAND_ERROR_IS_FATAL ANY)
  file(GLOB_RECURSE archives ${root}/*.a)
  if(archives)
    execute_process(COMMAND strip --strip-debug --enable-deterministic-archives
      ${archives} COMMAND_ERROR_IS_FATAL ANY)
  endif()
endforeach()
