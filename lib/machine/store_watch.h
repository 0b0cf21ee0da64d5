// Keeps c10d's store usable for all processes when somebody else connects to its port.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace ql::machine {

// c10d's store serves all connections by one thread, which waits for the remaining bytes of a
// request that has begun. A port scanner that sends one byte and stays connected thus blocks every
// process of the job. While a StoreWatch exists in the process that hosts the store, it closes such
// a connection after `patience`, and prints a warning with the address of the sender. Where /proc
// does not show the system calls of threads, it does nothing.
class StoreWatch {
 public:
  // `place` is the host and the port for messages.
  StoreWatch(int port, std::string place, std::chrono::milliseconds patience);
  ~StoreWatch();
  StoreWatch(StoreWatch&&) = delete;

 private:
  void watch();

  int port_;
  std::string place_;
  std::chrono::milliseconds patience_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace ql::machine
