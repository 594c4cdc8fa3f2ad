# Debian packages, by CPack: one for each shared library (its name has the
# soname, so that two versions can be installed), one for development, and the
# tool. A component of install() is a package; packages_stage.cmake adds what only
# a package has.
#
#   cmake --preset package && cmake --build --preset package
#
# CPACK_DEBIAN_PACKAGE_RELEASE is the revision of the package, CPACK_PACKAGE_CONTACT
# its maintainer.

set(CPACK_DEBIAN_PACKAGE_RELEASE 1 CACHE STRING "Revision of the Debian packages")
set(CPACK_PACKAGE_CONTACT
  "snowshed contributors <contributors@snowshed.invalid>" CACHE STRING
  "Maintainer of the Debian packages")

set(CPACK_GENERATOR DEB)
set(CPACK_COMPONENTS_ALL libsnowshed development)
if(SNOWSHED_MYSQL)
  list(APPEND CPACK_COMPONENTS_ALL libsnowshed-mysql)
endif()
if(SNOWSHED_CLI)
  list(APPEND CPACK_COMPONENTS_ALL tool)
endif()
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_PACKAGE_NAME snowshed)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_SOURCE_DIR}/packages_stage.cmake)
set(CPACK_SNOWSHED_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE) # for that script
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# One library needs the other, which is not installed when they are packed.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_CURRENT_BINARY_DIR})
set(release ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})

# Each package has a summary of its own.
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")

# snowshed_package(COMPONENT NAME SECTION DEPENDS SUMMARY LINE...)
function(snowshed_package component name section depends summary)
  string(TOUPPER ${component} id)
  set(prefix CPACK_DEBIAN_${id})
  list(JOIN ARGN "\n" text)
  set(${prefix}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(${prefix}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  set(${prefix}_PACKAGE_DEPENDS ${depends} PARENT_SCOPE)
  set(${prefix}_DESCRIPTION "read-through cache in Redis, ${summary}
snowshed is a read-through cache in Redis in front of MySQL. A missing or
expired entry costs one query for all processes on all hosts.
.
${text}" PARENT_SCOPE)
endfunction()

# CPack also writes scripts that call ldconfig; it cannot be told not to.
set(triggers ${CMAKE_CURRENT_BINARY_DIR}/triggers)
file(WRITE ${triggers} "activate-noawait ldconfig\n")
foreach(id LIBSNOWSHED LIBSNOWSHED-MYSQL)
  set(CPACK_DEBIAN_${id}_PACKAGE_CONTROL_EXTRA ${triggers})
endforeach()
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")

set(core libsnowshed${snowshed_soversion})
set(mysql libsnowshed-mysql${snowshed_soversion})
set(core_needed "${core} (= ${release})")
snowshed_package(libsnowshed ${core} libs ""
  "with stampede protection"
  "This is the library. It has distributed locks, too.")
snowshed_package(libsnowshed-mysql ${mysql} libs ${core_needed}
  "the source that reads MySQL"
  "This library loads rows from MySQL or MariaDB. It also has the guard that"
  "makes a lock safe in a transaction.")
set(needed "${core_needed}, libuv1-dev, libssl-dev")
# The static libcrypto of Debian 13 needs two that its own package does not bring.
if("zstd" IN_LIST openssl_STATIC_LIBRARIES)
  string(APPEND needed ", libzstd-dev, zlib1g-dev")
endif()
if(SNOWSHED_MYSQL)
  string(APPEND needed
    ", ${mysql} (= ${release}), libmariadb-dev | libmysqlclient-dev")
endif()
snowshed_package(development libsnowshed-dev libdevel ${needed}
  "development files"
  "These are the headers for C and C++, the static libraries, and the files for"
  "pkg-config and CMake.")
snowshed_package(tool snowshed-tools database ""
  "the tool for operators"
  "The command snowshed shows entries and locks, invalidates, compares entries"
  "with their rows, and says what is wrong with a Redis.")

include(CPack)
