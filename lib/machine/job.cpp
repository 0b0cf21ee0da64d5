// Lets the processes of a job meet in c10d's store, record there why the job ended, and ask which
// process is missing.
#include "machine/job.h"

#include <fmt/ranges.h>
#include <netdb.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <atomic>
#include <climits>
#include <iterator>
#include <new>
#include <numeric>
#include <tuple>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/strings.h"

namespace ql::machine {

namespace {

using Seconds = std::chrono::seconds;
using Milliseconds = std::chrono::milliseconds;

constexpr Seconds kAnswer{2};    // time in which the store answers if its host lives
constexpr Seconds kRollCall{5};  // time for waiting processes to report that they wait
constexpr Seconds kLeaving{5};   // process 0 stays at most this long for the others
constexpr int kFiles = 32;       // files that a process has open in addition to its connections
constexpr Seconds kRequest{10};  // time for the remaining bytes of a request to the store

std::string text_at(const Store& store, const std::string& key) {
  const std::vector<std::uint8_t> text = store->get(key);
  return {text.begin(), text.end()};
}

std::string find_text(const Store& store, const std::string& key) {
  return store->check({key}) ? text_at(store, key) : "";
}

// Sets the text of the key if it has none. Returns the text that the key has after this.
std::string set_first(const Store& store, const std::string& key, const std::string& text) {
  const auto found =
      store->compareSet(key, {}, std::vector<std::uint8_t>(text.begin(), text.end()));
  return {found.begin(), found.end()};
}

// Throws the exception for `text`, the reason why a job ends or does not begin. If signal 15
// stopped process 1, `text` is "15 in process 1 of 2 on host b". If an error is the reason, `text`
// is "0 " and the error message.
[[noreturn]] void throw_end(const std::string& where, const std::string& text) {
  const std::string words = text.substr(text.find(' ') + 1);
  if (const int signal = std::stoi(text); signal != 0) throw Interrupted(signal, words);
  throw LostProcess(where, words);
}

// From version 2.4 on, LibTorch's store uses libuv unless an option forbids this. If LibTorch was
// built without libuv, as in distributions, the store then fails. Older versions do not have the
// option.
template <typename Options>
auto without_libuv(Options& options, int /*preferred*/) -> decltype(void(options.useLibUV)) {
  options.useLibUV = false;
}
template <typename Options>
void without_libuv(Options& /*options*/, long /*otherwise*/) {}

bool has_store(const LaunchedProcess& process) {
  return process.rank == 0 && !process.launcher_answers;
}

std::string place_of(const LaunchedProcess& process) {
  return fmt::format("{}:{}", process.address, process.port);
}

// Process 0 has three connections to each process, two of c10d's store and one of Gloo. Throws
// Error if the limit of open files does not suffice for them, because c10d and Gloo would fail
// while the processes connect, each in another way. All processes have the same rule: so those of
// hosts with the same limit end at once, and do not wait for process 0.
void require_open_files(const LaunchedProcess& process) {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const int needed = kFiles + 3 * process.size;
  if (limit.rlim_cur >= static_cast<rlim_t>(needed)) return;
  throw Error(process_name(process.rank, process.size),
              fmt::format("{} processes need {} open files, but the limit is {}", process.size,
                          needed, static_cast<std::uint64_t>(limit.rlim_cur)),
              "raise the hard limit (ulimit -Hn), or use fewer processes");
}

// Has the beginning of the message of end_after_thread(), and the handler of other exceptions.
struct ThreadFailure {
  std::mutex mutex;
  std::string text;
  std::terminate_handler otherwise = nullptr;
};
ThreadFailure& thread_failure() {
  // It is never destroyed, because such a thread may fail while the program ends.
  static auto& failure = *new ThreadFailure;
  return failure;
}

// Ends the program when a thread of c10d throws, as it does when the process at the other end of
// its connection is gone. Nobody can catch this exception.
void end_after_thread() {
  ThreadFailure& failure = thread_failure();
  try {
    if (const std::exception_ptr error = std::current_exception()) std::rethrow_exception(error);
  } catch (const Error&) {  // c10d does not throw this class, so the other handler reports it
  } catch (const std::bad_alloc&) {
  } catch (const std::exception& error) {
    // Only the first of several threads reports.
    static std::atomic_flag entered = ATOMIC_FLAG_INIT;
    while (entered.test_and_set()) ::pause();
    log_line(LogLevel::kQuiet,
             fmt::format("error: {}: {}", failure.text, first_line(error.what())));
    std::_Exit(static_cast<int>(ExitCode::kFailed));
  } catch (...) {
  }
  failure.otherwise();
}

// Makes end_after_thread() the handler, with this beginning of its message.
void report_threads_of_c10d(const std::string& text) {
  ThreadFailure& failure = thread_failure();
  const std::lock_guard lock(failure.mutex);
  failure.text = text;
  if (std::get_terminate() == end_after_thread) return;
  failure.otherwise = std::get_terminate();
  std::set_terminate(end_after_thread);
}

bool is_loopback(const std::string& address) {
  return address.rfind("127.", 0) == 0 || address == "::1";
}

std::string numeric(const sockaddr* address, socklen_t size) {
  char text[NI_MAXHOST] = "";
  ::getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

// Holds a connection to the store, with the numeric addresses of this host and of the store's host.
struct Connection {
  Store store;
  std::string own, reached;
};

// Sets both addresses of the connection, for the interface that the system chooses, without sending
// anything. Returns false if there is no route now.
bool find_route(const LaunchedProcess& process, Connection& connection) {
  addrinfo hints = {}, *found = nullptr;
  hints.ai_socktype = SOCK_DGRAM;
  const std::string port = std::to_string(process.port);
  if (::getaddrinfo(process.address.c_str(), port.c_str(), &hints, &found) != 0) return false;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  for (const addrinfo* next = found; next != nullptr; next = next->ai_next) {
    const Descriptor socket(::socket(next->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (::connect(socket, next->ai_addr, next->ai_addrlen) != 0) continue;
    sockaddr_storage own = {};
    socklen_t size = sizeof own;
    auto* any = reinterpret_cast<sockaddr*>(&own);
    ::getsockname(socket, any, &size);
    connection.own = numeric(any, size);
    connection.reached = numeric(next->ai_addr, next->ai_addrlen);
    return true;
  }
  return false;
}

Connection connect(const LaunchedProcess& process, const std::string& name, Seconds patience) {
  const auto deadline = Clock::now() + patience;
  Connection connection;
  while (!find_route(process, connection)) {
    if (Clock::now() > deadline) {
      throw Error(
          "MASTER_ADDR",
          fmt::format("{} cannot resolve {}, or has no route to it", name, process.address),
          "set MASTER_ADDR to a name or an address of process 0's host that all hosts know");
    }
    std::this_thread::sleep_for(Milliseconds(200));
  }
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(process.port);
  options.isServer = has_store(process);
  options.waitWorkers = false;
  options.timeout = patience;
  without_libuv(options, 0);
  if (options.isServer && !is_loopback(connection.reached) &&
      connection.own != connection.reached) {
    throw Error("MASTER_ADDR", fmt::format("{} is not an address of {}", process.address, name),
                fmt::format("use an address of process 0's host, or start process 0 on {}",
                            process.address));
  }
  const std::string place = place_of(process), job = process.job + ".";
  std::string first = job;
  Store store;
  try {
    store = c10::make_intrusive<c10d::TCPStore>(process.address, options);
    if (!process.launcher_answers) first = set_first(store, "job", job);
  } catch (const std::exception& error) {
    const std::string words = fmt::format("{}: {}", place, first_line(error.what()));
    if (options.isServer && !store) {
      throw Error(name, "cannot listen at " + words,
                  "if another job or program uses the port, set MASTER_PORT to another one");
    }
    const std::string host = process.launcher_answers ? "torchrun" : "process 0";
    throw Error(name, fmt::format("cannot reach {} at {}", host, words),
                fmt::format("check MASTER_ADDR, MASTER_PORT and the messages of {}", host));
  }
  if (first != job) {
    throw Error(name, "another job uses " + place, "give one of the two jobs another MASTER_PORT");
  }
  connection.store = c10::make_intrusive<c10d::PrefixStore>(process.job, store);
  return connection;
}

// Returns the reason why a job does not begin, in the form that throw_end() reads: "0 " and a
// message.
std::string missing(const Store& store, const LaunchedProcess& process, Seconds patience) {
  std::vector<int> ranks;
  for (int rank = 0; rank < process.size; ++rank) {
    if (!store->check({fmt::format("member/{}", rank)})) ranks.push_back(rank);
  }
  return fmt::format(
      "0 not all of the {} processes have connected in {}, missing: rank {}; start all of "
      "them, with the same MASTER_ADDR and MASTER_PORT",
      process.size, counted(patience.count(), "second"), fmt::join(ranks, ", "));
}

// Enters this process in the store under its rank, and waits for the others. Returns a JSON array
// with the name and the addresses of every process, or the reason why the job does not begin. A
// process that comes too late does not disturb a job that has begun.
std::string take_place(const Store& store, const LaunchedProcess& process, Json own,
                       Seconds patience) {
  const auto deadline = Clock::now() + patience;
  // If two processes have one rank by mistake, this number makes their entries different.
  own["arrival"] = store->add("came", 1);
  const std::string name = own.at("name").get<std::string>();
  const std::string first = set_first(store, "size", fmt::format("{} {}", process.size, name));
  if (std::stoi(first) != process.size) {
    const LostProcess error(
        "WORLD_SIZE",
        fmt::format("differs between {} and {}", name, first.substr(first.find(' ') + 1)),
        "start all processes with the same WORLD_SIZE");
    set_first(store, "members", fmt::format("0 {}", error.what()));
    // The first process had WORLD_SIZE 1, so it did not wait for others and is working already. The
    // key "end" stops it.
    if (std::stoi(first) == 1) set_first(store, "end", fmt::format("0 {}", error.what()));
    throw LostProcess(error);
  }
  const std::string key = fmt::format("member/{}", process.rank);
  if (const Json member = Json::parse(set_first(store, key, own.dump())); member != own) {
    throw LostProcess(name,
                      fmt::format("has the RANK of {}, which has connected before",
                                  member.at("name").get<std::string>()),
                      "start every RANK once, and give each job a MASTER_PORT of its own");
  }
  if (store->add("placed", 1) == process.size) {
    Json members = Json::array();
    for (int other = 0; other < process.size; ++other) {
      members.push_back(Json::parse(text_at(store, fmt::format("member/{}", other))));
    }
    set_first(store, "members", members.dump());
  }
  std::string found;
  for (auto time = Milliseconds(2); (found = find_text(store, "members")).empty();
       time = std::min(2 * time, Milliseconds(200))) {
    std::this_thread::sleep_for(time);
    if (Clock::now() > deadline) set_first(store, "members", missing(store, process, patience));
  }
  return found;
}

// Asks all processes to report that they are waiting for a sum. Returns the ranks of those that do
// not report it in time: they have ended, are silent, or are computing. Also returns the error
// message of the process that asked first, which is `own_words` if this process did.
std::pair<std::string, std::vector<int>> call_roll(const Store& store,
                                                   const LaunchedProcess& process,
                                                   const std::string& own_words) {
  const auto key = [](int rank) { return fmt::format("waits/{}", rank); };
  const std::string words = set_first(store, "ask", own_words);
  set_first(store, key(process.rank), "yes");
  std::vector<int> ranks(static_cast<std::size_t>(process.size));
  std::iota(ranks.begin(), ranks.end(), 0);
  for (const auto end = Clock::now() + kRollCall; !ranks.empty() && Clock::now() < end;) {
    const auto waits = [&](int rank) { return store->check({key(rank)}); };
    ranks.erase(std::remove_if(ranks.begin(), ranks.end(), waits), ranks.end());
    std::this_thread::sleep_for(Milliseconds(100));
  }
  return {words, ranks};
}

}  // namespace

// Calls work(store) with a time limit, because c10d has none if the store's host is silent.
template <typename Work>
auto Job::ask(Milliseconds time, Work work, bool to_the_end) {
  if (Clock::now() < ask_again_) throw NoAnswer("the store was silent a moment ago");
  const std::string lost = fmt::format("{}: the connection to {} is lost", name(process_.rank),
                                       process_.launcher_answers ? "torchrun" : name(0));
  try {
    return within(time, to_the_end, [store = store_, work, lost] {
      try {
        return work(store);
      } catch (const Error&) {
        throw;
      } catch (const std::exception& error) {
        throw LostProcess(lost, first_line(error.what()));
      }
    });
  } catch (const NoAnswer&) {
    ask_again_ = Clock::now() + kLeaving;
    throw;
  }
}

Job::Job(const LaunchedProcess& process) : process_(process) {
  for (int rank = 0; rank < process.size; ++rank) {
    names_.push_back(process_name(rank, process.size));
  }
  char host[HOST_NAME_MAX + 1] = "";
  ::gethostname(host, HOST_NAME_MAX);
  names_[static_cast<std::size_t>(process.rank)] += fmt::format(" on host {}", host);
}

Job::~Job() {
  if (!store_) return;
  try {
    ask(kLeaving + kAnswer, [stays = has_store(process_)](const Store& store) {
      store->add("gone", 1);
      const auto end = Clock::now() + kLeaving;
      while (stays && store->add("gone", 0) < store->add("came", 0) && Clock::now() < end) {
        std::this_thread::sleep_for(Milliseconds(5));
      }
    });
  } catch (const std::exception&) {
    // This process has finished. If another process fails, that process reports its failure.
  }
}

void Job::meet(Seconds patience) {
  require_open_files(process_);
  report_threads_of_c10d(fmt::format("{}: the connection to {} at {} is lost", name(process_.rank),
                                     process_.launcher_answers ? "torchrun" : "the other processes",
                                     place_of(process_)));
  if (has_store(process_)) {
    watch_ =
        std::make_unique<StoreWatch>(process_.port, place_of(process_),
                                     std::min<Milliseconds>(kRequest, Milliseconds(patience) / 2));
  }
  try {
    find_others(patience);
  } catch (const NoAnswer&) {
    throw Error(
        name(process_.rank),
        fmt::format("the processes cannot meet at {}, which does not answer", place_of(process_)),
        "if another program connects to the port, set MASTER_PORT to another one");
  }
}

void Job::find_others(Seconds patience) {
  const Connection found =
      within(patience + kAnswer, false, [=, process = process_, own = name(process_.rank)] {
        return connect(process, own, patience);
      });
  store_ = found.store;
  const Json own = {
      {"name", name(process_.rank)}, {"address", found.own}, {"reached", found.reached}};
  const auto take = [=, process = process_](const Store& store) {
    return take_place(store, process, own, patience);
  };
  const std::string members = ask(patience + kAnswer, take, false);
  if (members.front() != '[') throw_end(name(process_.rank), members);
  names_.clear();
  std::string reached = "127.0.0.1";
  for (const Json& member : Json::parse(members)) {
    names_.push_back(member.at("name").get<std::string>());
    addresses_.push_back(member.at("address").get<std::string>());
    if (!is_loopback(addresses_.back())) reached = member.at("reached").get<std::string>();
  }
  // On the host of process 0, that host's name may resolve to the loopback address, which no other
  // host can reach.
  std::replace_if(addresses_.begin(), addresses_.end(), is_loopback, reached);
  const auto begin = addresses_.begin();
  process_.local_rank = static_cast<int>(std::count(begin, begin + process_.rank, address()));
  process_.local_size = static_cast<int>(std::count(begin, addresses_.end(), address()));
}

void Job::await_all(Seconds patience) {
  const auto key = [](int rank) { return fmt::format("ready/{}", rank); };
  std::vector<int> missing(static_cast<std::size_t>(process_.size));
  std::iota(missing.begin(), missing.end(), 0);
  publish(key(process_.rank), "yes");
  const auto deadline = Clock::now() + patience;
  for (auto time = Milliseconds(2);; time = std::min(2 * time, Milliseconds(200))) {
    try {
      missing = ask(kAnswer, [missing, key](const Store& store) {
        std::vector<int> still;
        std::copy_if(missing.begin(), missing.end(), std::back_inserter(still),
                     [&](int rank) { return !store->check({key(rank)}); });
        return still;
      });
    } catch (const NoAnswer&) {
      // The store's host may only be paused.
    }
    if (missing.empty()) return;
    if (const int own = stop_signal(); own != 0) {
      throw Interrupted(own, "while connecting to the other processes");
    }
    if (const int signal = check(false); signal != 0) throw Interrupted(signal);
    if (Clock::now() > deadline) break;
    std::this_thread::sleep_for(time);
  }
  std::vector<std::string> names(missing.size());
  std::transform(missing.begin(), missing.end(), names.begin(),
                 [this](int rank) { return name(rank); });
  throw Error(
      fmt::format("{}", fmt::join(names, " or ")),
      fmt::format("has opened no network interface in {}", counted(patience.count(), "second")),
      "look whether that host hangs, or start the job again");
}

// Ignores errors: if the store is lost, the other processes notice the loss themselves.
void Job::publish(const std::string& key, const std::string& text) noexcept {
  try {
    ask(kAnswer, [=](const Store& store) { set_first(store, key, text); });
  } catch (const std::exception&) {
  }
}

int Job::check(bool waits) {
  std::string end, stop;
  try {
    std::tie(end, stop) =
        ask(kAnswer, [waits, own = fmt::format("waits/{}", process_.rank)](const Store& store) {
          if (waits && store->check({"ask"})) set_first(store, own, "yes");
          return std::pair(find_text(store, "end"), find_text(store, "stop"));
        });
  } catch (const NoAnswer&) {
    // The store's host may only be paused. If it is lost, the time limit of a sum ends the job.
    return 0;
  }
  if (!end.empty()) throw_end(name(process_.rank), end);
  return stop.empty() ? 0 : std::stoi(stop);
}

void Job::end(const std::exception& error) noexcept {
  if (!store_ || dynamic_cast<const LostProcess*>(&error) != nullptr) return;
  const auto* stop = dynamic_cast<const Interrupted*>(&error);
  try {
    const std::string own = name(process_.rank);
    publish(addresses_.empty() ? "members" : "end",
            stop != nullptr ? fmt::format("{} in {}", stop->signal_number(), own)
                            : fmt::format("0 {}: {}", own, failure_text(error)));
  } catch (const std::exception&) {
    // Memory does not suffice for the message. The others notice anyway that this process has
    // ended.
  }
}

// Gloo's error names at most one other process. That process may have closed its connections only
// because its own time limit was over, so all processes are asked.
void Job::lose(const std::string& error) {
  check(true);  // throws if a process has reported its failure
  const std::string line = first_line(error);
  const std::size_t place = line.find("] ");
  std::string words = place == std::string::npos ? line : line.substr(place + 2);
  std::string nobody =
      "all processes are waiting, but the connections between them transfer nothing";
  std::vector<int> silent;
  try {
    std::tie(words, silent) =
        ask(kRollCall + kAnswer, [words, process = process_](const Store& store) {
          return call_roll(store, process, words);
        });
  } catch (const NoAnswer&) {
    nobody = fmt::format("{} does not answer, so it is unknown which process is lost",
                         place_of(process_));
    if (process_.rank > 0 && !process_.launcher_answers) silent = {0};
  }
  std::vector<std::string> gone, names;
  for (const int rank : silent) {
    names.push_back(name(rank));
    const std::string peer = fmt::format("[{}]", addresses_[static_cast<std::size_t>(rank)]);
    if (words.find(peer) != std::string::npos) gone.push_back(names.back());
  }
  const std::string why =
      !gone.empty()
          ? fmt::format("the connection to {} is lost: {}", fmt::join(gone, " or "), words)
      : !names.empty() ? fmt::format("{} keeps the others waiting for too long: {}",
                                     fmt::join(names, " or "), words)
                       : fmt::format("{}: {}", nobody, words);
  publish("end", "0 " + why);
  check(true);  // all processes report the reason that was published first
  throw LostProcess(name(process_.rank), why);
}

void listen_for_others(const LaunchedProcess& process, Seconds patience) {
  std::thread([process, patience] {
    try {
      Job job(process);
      for (job.meet(patience);; job.check(false)) std::this_thread::sleep_for(kAnswer);
    } catch (const LostProcess& error) {
      log_line(LogLevel::kQuiet, fmt::format("error: {}", error.what()));
      ::kill(::getpid(), SIGTERM);
    } catch (const std::exception&) {
      // If this process cannot listen, for example because another program uses the port, no other
      // process can find it, and it works alone.
    }
  }).detach();
}

}  // namespace ql::machine
