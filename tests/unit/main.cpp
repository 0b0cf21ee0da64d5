// Contains the main function of the unit test programs.

#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <csignal>

int main(int argc, char** argv) {
  // As in every program (run_tool), a lost connection is an error of write(): processes that leave
  // a job would otherwise end those that remain.
  std::signal(SIGPIPE, SIG_IGN);
  return doctest::Context(argc, argv).run();
}
