# Prepares the headers of QL_HEADER_FOLDERS and QL_MORE_HEADERS for installation, except
# QL_HEADERS_LEFT_OUT. Inside the project they name each other "base/error.h"; other projects find
# them as <transformer-ql/base/error.h>.
file(REMOVE_RECURSE "${QL_HEADERS}")
set(headers ${QL_MORE_HEADERS})
foreach(folder IN LISTS QL_HEADER_FOLDERS)
  file(GLOB found RELATIVE "${QL_HEADER_SOURCE}" "${QL_HEADER_SOURCE}/${folder}/*.h")
  list(APPEND headers ${found})
endforeach()
list(REMOVE_ITEM headers ${QL_HEADERS_LEFT_OUT})
foreach(header IN LISTS headers)
  file(READ "${QL_HEADER_SOURCE}/${header}" text)
  string(REGEX REPLACE "#include \"([^\"]*)\"" "#include <transformer-ql/\\1>" text "${text}")
  file(WRITE "${QL_HEADERS}/transformer-ql/${header}" "${text}")
endforeach()
