// Runs several "processes" as threads of one, each with its own group.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "machine/process_group.h"

namespace ql::test {

inline int free_port() {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ::bind(descriptor, reinterpret_cast<sockaddr*>(&address), size);
  ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size);
  ::close(descriptor);
  return ntohs(address.sin_port);
}

// Calls `work` once for each of `size` ranks, in parallel threads, and rethrows an exception of one
// of them.
inline void in_group(int size, const std::function<void(machine::ProcessGroup&)>& work,
                     std::chrono::seconds patience = std::chrono::seconds(60)) {
  LaunchedProcess process;
  process.size = process.local_size = size;
  process.port = free_port();
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        LaunchedProcess own = process;
        own.rank = own.local_rank = rank;
        machine::ProcessGroup group(own, patience);
        work(group);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace ql::test
