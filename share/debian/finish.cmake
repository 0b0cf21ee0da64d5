# CPack runs this on the installed files: it renames or compresses the files for which Debian requires that.
set(share ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/share)
set(documents ${share}/doc/transformer-ql)
file(RENAME ${documents}/LICENSE ${documents}/copyright)
file(RENAME ${documents}/CHANGELOG ${documents}/changelog)
file(COPY ${CPACK_PACKAGE_DIRECTORY}/changelog.Debian DESTINATION ${documents})
file(GLOB_RECURSE compressed ${share}/man/*.[157] ${documents}/changelog*)
execute_process(COMMAND gzip -9n ${compressed} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND chmod -R u=rwX,go=rX ${CPACK_TEMPORARY_INSTALL_DIRECTORY}
                COMMAND_ERROR_IS_FATAL ANY)
