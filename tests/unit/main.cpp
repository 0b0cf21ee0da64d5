// Contains the main function of the unit test programs.

#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <csignal>

int main(int argc, char** argv) {
  // Every program ignores SIGPIPE (run_tool), so that a lost connection is an error of write().
  // Here it would end the processes that remain in a job.
  std::signal(SIGPIPE, SIG_IGN);
  return doctest::Context(argc, argv).run();
}
