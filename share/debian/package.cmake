# A Debian package of the tools (make -f Makefile.wrapper package), for the release that it is built
# on. Headers and static libraries are left out: who compiles against them has a compiler, and
# "install" gives libraries that were made by the same one.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME ${PROJECT_NAME})
set(CPACK_INSTALL_CMAKE_PROJECTS "${PROJECT_BINARY_DIR};${PROJECT_NAME};tools;/")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/finish.cmake)

# The revision names the release, so that the packages of two releases differ, and that of a later
# release replaces the other when a machine is upgraded.
file(STRINGS /etc/os-release distribution REGEX "^ID=")
file(STRINGS /etc/os-release distribution_version REGEX "^VERSION_ID=")
string(REGEX REPLACE "(VERSION_)?ID=|\"" "" distribution "${distribution}${distribution_version}")
set(CPACK_DEBIAN_PACKAGE_RELEASE 1~${distribution})
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
# Without it a machine may have the reference BLAS, which is 30 times slower.
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS libopenblas0-openmp)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "perl, python3, gnuplot-nox, zstd")
set(QL_PACKAGER "Transformer-QL maintainers <maintainers@transformer-ql.invalid>" CACHE STRING
    "Who answers for the Debian package: Name <address>")
set(CPACK_PACKAGE_CONTACT ${QL_PACKAGER})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "train and evaluate long-context language models in the shell")
set(CPACK_PACKAGE_DESCRIPTION
"Six programs that turn text into a trained language model and its perplexity,
through a shell pipe: qltok makes token ids of text, qlbin packs them, qltrain
trains on them, qleval evaluates, qlgen goes on with a prompt, and qlctx prints
how far back a network sees.
The networks are Transformer-QL, which reads text in several temporal scales,
and its relatives: Transformer-XL, the Compressive, the Multi-scale and the
vanilla Transformer.")

string(TIMESTAMP now "%a, %d %b %Y %H:%M:%S +0000" UTC)
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/changelog.Debian CONTENT
"${PROJECT_NAME} (${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; urgency=medium

  * Built from the sources of version ${PROJECT_VERSION}; changelog.gz lists the changes.

 -- ${QL_PACKAGER}  ${now}
")
include(CPack)
