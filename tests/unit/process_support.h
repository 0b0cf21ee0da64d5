// Runs several "processes" as threads of one, each with its own group.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <fstream>
#include <functional>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "machine/process_group.h"

namespace ql::test {

// Returns a port below those that the kernel gives to connections, which may take one of theirs
// before it is used.
inline int free_port() {
  int end = 32768;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> end;
  std::mt19937 random(std::random_device{}());
  std::uniform_int_distribution<int> ports(20000, std::max(20000, end - 1));
  for (int tries = 0; tries < 200; ++tries) {
    const int descriptor = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    const bool is_below = end >= 21000 && tries < 100;
    address.sin_port = htons(static_cast<std::uint16_t>(is_below ? ports(random) : 0));
    socklen_t size = sizeof address;
    const bool is_free = ::bind(descriptor, reinterpret_cast<sockaddr*>(&address), size) == 0;
    ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size);
    ::close(descriptor);
    if (is_free) return ntohs(address.sin_port);
  }
  throw std::runtime_error("no port is free");
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
