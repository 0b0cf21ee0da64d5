# Prepares the headers of QL_HEADER_FOLDERS for installation. Inside the project they name each other
# "base/error.h"; other projects find them as <transformer-ql/base/error.h>.
file(REMOVE_RECURSE "${QL_HEADERS}")
foreach(folder IN LISTS QL_HEADER_FOLDERS)
  file(GLOB headers RELATIVE "${QL_HEADER_SOURCE}" "${QL_HEADER_SOURCE}/${folder}/*.h")
  foreach(header IN LISTS headers)
    file(READ "${QL_HEADER_SOURCE}/${header}" text)
    string(REGEX REPLACE "#include \"([^\"]*)\"" "#include <transformer-ql/\\1>" text "${text}")
    file(WRITE "${QL_HEADERS}/transformer-ql/${header}" "${text}")
  endforeach()
endforeach()
