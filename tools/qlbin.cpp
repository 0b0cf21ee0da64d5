#include "base/tool.h"

int main(int argc, char** argv) {
  static const ql::ToolTable kTable{"qlbin", "", {{"", "", "", {}, {}}}};
  return ql::run_tool(kTable, argc, argv, [](const ql::Options&) {});
}
