// Finds the connection that blocks c10d's store, by the system call in which the store's thread
// waits.
#include "machine/store_watch.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <exception>
#include <filesystem>
#include <fstream>
#include <optional>

#include "base/log.h"
#include "base/strings.h"

namespace ql::machine {

namespace {

using Clock = std::chrono::steady_clock;
using Address = int(int, sockaddr*, socklen_t*);

// Returns the host and the port of one end of a connection, both as numbers, or empty texts if the
// descriptor is not a socket.
std::pair<std::string, std::string> address_of(int descriptor, Address* end) {
  sockaddr_storage storage = {};
  socklen_t size = sizeof storage;
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  char host[NI_MAXHOST] = "", port[NI_MAXSERV] = "";
  if (end(descriptor, address, &size) != 0) return {};
  ::getnameinfo(address, size, host, sizeof host, port, sizeof port,
                NI_NUMERICHOST | NI_NUMERICSERV);
  return {host, port};
}

struct Connection {
  int descriptor;
  std::string sender;
};

// Finds a connection to `port` of this process from which a thread waits to read. While a thread
// waits in a system call, the first two numbers of its file `syscall` are the call and its first
// argument. The processes' own ends of their connections have other ports.
std::optional<Connection> awaited_connection(int port) {
  std::error_code ignored;
  for (std::filesystem::directory_iterator task("/proc/self/task", ignored), end;
       !ignored && task != end; task.increment(ignored)) {
    std::ifstream file(task->path() / "syscall");
    long call = -1, descriptor = -1;
    if (!(file >> call >> std::hex >> descriptor) || call != SYS_recvfrom) continue;
    const int number = static_cast<int>(descriptor);
    if (address_of(number, ::getsockname).second != std::to_string(port)) continue;
    const auto [host, sender_port] = address_of(number, ::getpeername);
    if (!host.empty()) return Connection{number, fmt::format("{}, port {}", host, sender_port)};
  }
  return std::nullopt;
}

}  // namespace

StoreWatch::StoreWatch(int port, std::string place, std::chrono::milliseconds patience)
    : port_(port), place_(std::move(place)), patience_(patience), thread_([this] { watch(); }) {}

StoreWatch::~StoreWatch() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void StoreWatch::watch() {
  std::string sender;
  Clock::time_point since;
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, std::min(patience_ / 4, std::chrono::milliseconds(1000)),
                            [this] { return ends_; })) {
    std::optional<Connection> found;
    try {
      found = awaited_connection(port_);
    } catch (const std::exception&) {
      // Memory has run out. The other threads know better whether this process has to end.
    }
    if (!found || found->sender != sender) {
      sender = found ? found->sender : "";
      since = Clock::now();
    } else if (Clock::now() - since >= patience_) {
      ::shutdown(found->descriptor, SHUT_RDWR);
      log_warning(
          "{}: a connection from {} began a request and has sent nothing for {}, so that no "
          "process was answered; the connection is closed; if this is not a process of the job, "
          "keep it from the port, or set MASTER_PORT to another one",
          place_, sender,
          counted(std::chrono::ceil<std::chrono::seconds>(patience_).count(), "second"));
      sender.clear();
    }
  }
}

}  // namespace ql::machine
