#include "machine/process_group.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <future>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/number.h"
#include "base/signals.h"
#include "base/temporary_name.h"

#ifdef QL_GLOO
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "machine/device_sum_internal.h"
#endif

namespace ql::machine {

#ifdef QL_GLOO

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::seconds;
using Store = c10::intrusive_ptr<c10d::Store>;

// A process that waits looks for signals and for the end of the job this often.
constexpr Seconds kLook{1};
constexpr Seconds kAnswer{2};    // the store's time to answer, if its host lives
constexpr Seconds kRollCall{5};  // the time of all that wait to say so
constexpr Seconds kLeaving{10};  // process 0 stays this long for those that still leave
// A process that a signal has asked to stop waits this long for the others to come to the same
// place, where they stop together after a checkpoint. Schedulers kill after 30 seconds.
constexpr Seconds kLastWait{10};

// The text is the one that another process has given, or says which one is lost.
class LostProcess : public Error {
  using Error::Error;
};
class NoAnswer : public Error {
  using Error::Error;
};

// Calls `work` on a thread of its own, because neither c10d nor NCCL can be interrupted. Throws
// NoAnswer after `time`, and Interrupted when a signal asks to stop, unless `to_the_end`. The
// thread then goes on alone, so `work` has to own what it uses.
template <typename Work>
auto within(std::chrono::milliseconds time, bool to_the_end, Work work) {
  std::packaged_task<decltype(work())()> task(std::move(work));
  auto result = task.get_future();
  std::thread(std::move(task)).detach();
  const auto deadline = Clock::now() + time;
  while (result.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready) {
    if (!to_the_end) check_for_stop();
    if (Clock::now() > deadline) throw NoAnswer("", "no answer in time");
  }
  return result.get();
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string text_at(const Store& store, const std::string& key) {
  const std::vector<std::uint8_t> text = store->get(key);
  return {text.begin(), text.end()};
}

std::string find_text(const Store& store, const std::string& key) {
  return store->check({key}) ? text_at(store, key) : "";
}

// Returns what is there, and sets it where nothing is.
std::string set_first(const Store& store, const std::string& key, const std::string& text) {
  const auto found =
      store->compareSet(key, {}, std::vector<std::uint8_t>(text.begin(), text.end()));
  return {found.begin(), found.end()};
}

// Why a job ends, as the store has it: the signal that stopped a process, or 0, and words.
std::string end_text(int signal, const std::string& words) {
  return fmt::format("{} {}", signal, words);
}

[[noreturn]] void throw_end(const std::string& where, const std::string& text) {
  const auto signal = static_cast<int>(parse_integer(text.substr(0, text.find(' '))).value_or(0));
  const std::string words = text.substr(text.find(' ') + 1);
  if (signal != 0) throw Interrupted(signal, words);
  throw LostProcess(where, words);
}

// LibTorch from 2.4 on takes libuv for its store unless told otherwise, and refuses where it was
// built without, as distributions build it. Older ones do not have the option.
template <typename Options>
auto without_libuv(Options& options, int /*preferred*/) -> decltype(void(options.useLibUV)) {
  options.useLibUV = false;
}
template <typename Options>
void without_libuv(Options& /*options*/, long /*otherwise*/) {}

bool is_loopback(const std::string& address) {
  return address.rfind("127.", 0) == 0 || address == "::1";
}

// The numeric addresses of both ends of a connection there, over the interface that the system
// chooses; empty: there is no way now. Nothing is sent.
std::pair<std::string, std::string> route_to(const LaunchedProcess& process) {
  addrinfo hints = {}, *found = nullptr;
  hints.ai_socktype = SOCK_DGRAM;
  const std::string port = std::to_string(process.port);
  if (::getaddrinfo(process.address.c_str(), port.c_str(), &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  const auto name = [](int socket, auto get_name) -> std::string {
    sockaddr_storage address = {};
    socklen_t size = sizeof address;
    auto* any = reinterpret_cast<sockaddr*>(&address);
    char text[NI_MAXHOST] = "";
    get_name(socket, any, &size);
    ::getnameinfo(any, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
    return text;
  };
  for (const addrinfo* next = found; next != nullptr; next = next->ai_next) {
    const Descriptor socket(::socket(next->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (::connect(socket, next->ai_addr, next->ai_addrlen) == 0) {
      return {name(socket, ::getsockname), name(socket, ::getpeername)};
    }
  }
  return {};
}

// How a process comes to the others. It runs on a thread of its own, until `left`.
struct Meeting {
  Meeting(const LaunchedProcess& the_process, Seconds the_patience)
      : process(the_process), patience(the_patience) {
    ::gethostname(host, HOST_NAME_MAX);
    name = fmt::format("{} on host {}", process_name(process.rank, process.size), host);
  }

  bool pause(std::chrono::milliseconds time) const {
    std::this_thread::sleep_for(time);
    return !left && Clock::now() < deadline;
  }

  // Throws the reason why this process or another one, which left it in the store, cannot.
  Json run() {
    connect();
    take_place();
    std::string found;
    for (auto time = std::chrono::milliseconds(2); (found = find_text(store, "members")).empty();
         time = std::min(2 * time, std::chrono::milliseconds(200))) {
      if (pause(time)) continue;
      std::vector<int> missing;
      for (int rank = 0; rank < process.size; ++rank) {
        if (!store->check({fmt::format("member/{}", rank)})) missing.push_back(rank);
      }
      throw Error(name,
                  fmt::format("of {} processes {} {} not come in {} seconds", process.size,
                              fmt::join(missing, ", "), missing.size() == 1 ? "has" : "have",
                              patience.count()),
                  "start all of them, with the same MASTER_ADDR and MASTER_PORT");
    }
    if (found.front() != '[') throw_end(name, found);
    return Json::parse(found);
  }

  void connect() {
    while ((route = route_to(process)).first.empty()) {
      if (pause(std::chrono::milliseconds(200))) continue;
      throw Error("MASTER_ADDR", fmt::format("host {} finds no way to {}", host, process.address),
                  "set it to a name or an address of the host of process 0 that all hosts know");
    }
    const bool answers = process.rank == 0 && !process.launcher_answers;
    if (answers && !is_loopback(route.second) && route.first != route.second) {
      throw Error("MASTER_ADDR",
                  fmt::format("{} is not an address of host {}, where process 0 runs",
                              process.address, host),
                  "set it to one, or start process 0 there");
    }
    c10d::TCPStoreOptions options;
    options.port = static_cast<std::uint16_t>(process.port);
    options.isServer = answers;
    options.waitWorkers = false;
    options.timeout = patience;
    without_libuv(options, 0);
    const std::string place = fmt::format("{}:{}", process.address, process.port);
    try {
      store = c10::make_intrusive<c10d::TCPStore>(process.address, options);
    } catch (const std::exception& error) {
      throw Error(name,
                  fmt::format("cannot {} {}: {}", answers ? "answer at" : "reach process 0 at",
                              place, first_line(error.what())),
                  answers
                      ? "if another job or program uses the port, set MASTER_PORT to another one"
                      : "look at the messages of process 0, and at MASTER_ADDR and MASTER_PORT");
    }
    if (!process.launcher_answers &&
        set_first(store, "job", process.job + ".") != process.job + ".") {
      throw Error(name, fmt::format("another job meets at {}", place),
                  "set MASTER_PORT to another one for one of the jobs");
    }
    store = c10::make_intrusive<c10d::PrefixStore>(process.job, store);
    is_connected = true;
  }

  // A job that has begun takes no harm from one that comes too late.
  void take_place() {
    const std::string rank = std::to_string(process.rank);
    if (store->add("taken/" + rank, 1) > 1) {
      const Json other = Json::parse(text_at(store, "member/" + rank));
      throw Error(name,
                  fmt::format("is one too many: host {} has a process {} already",
                              other.at("host").get<std::string>(), rank),
                  "start every RANK once, and give each job a MASTER_PORT of its own");
    }
    const std::string first =
        set_first(store, "size", fmt::format("{} on host {}", process.size, host));
    if (first.substr(0, first.find(' ')) != std::to_string(process.size)) {
      const Error error("WORLD_SIZE",
                        fmt::format("{} on host {}, and {}", process.size, host, first),
                        "start all processes with the same one");
      set_first(store, "members", end_text(0, error.what()));
      // One that takes itself for the only one has begun at once.
      if (first.rfind("1 ", 0) == 0) set_first(store, "end", end_text(0, error.what()));
      throw Error(error);
    }
    const Json own = {{"host", host},
                      {"machine", this_machine()},
                      {"address", route.first},
                      {"reached", route.second}};
    set_first(store, "member/" + rank, own.dump());
    has_place = true;
    if (store->add("here", 1) < process.size) return;
    Json members = Json::array();
    for (int other = 0; other < process.size; ++other) {
      members.push_back(Json::parse(text_at(store, fmt::format("member/{}", other))));
    }
    set_first(store, "members", members.dump());
  }

  LaunchedProcess process;
  Seconds patience;
  Clock::time_point deadline = Clock::now() + patience;
  char host[HOST_NAME_MAX + 1] = "";
  std::string name;
  std::pair<std::string, std::string> route;
  Store store;
  std::atomic<bool> is_connected{false}, has_place{false}, left{false};
};

// Waits for a sum, for a while. What it has thrown is thrown.
bool is_done(c10d::Work& work) {
  if (!work.isCompleted()) {
    try {
      return work.wait(kLook);
    } catch (const std::exception&) {
      if (!work.isCompleted()) return false;
    }
  }
  return work.wait();
}

// The processes of a job outside of their sums, through c10d's store.
class Job {
  // Calls work(store), which has no time limit of its own where the store's host is silent.
  template <typename Work>
  auto ask(std::chrono::milliseconds time, Work work) {
    if (Clock::now() < ask_again_) throw NoAnswer("", "the store was silent a moment ago");
    try {
      return within(time, true, [store = store_, work] { return work(store); });
    } catch (const NoAnswer&) {
      ask_again_ = Clock::now() + kLeaving;
      throw;
    }
  }

 public:
  Job(const LaunchedProcess& the_process, Seconds patience) : process(the_process) {
    const auto meeting = std::make_shared<Meeting>(process, patience);
    Json members;
    try {
      members = within(patience + kAnswer, false, [meeting] { return meeting->run(); });
      store_ = meeting->store;
    } catch (const std::exception& error) {
      meeting->left = true;
      const auto* stop = dynamic_cast<const Interrupted*>(&error);
      const auto* ours = dynamic_cast<const Error*>(&error);
      const std::string words = stop != nullptr ? "while the processes met, in " + meeting->name
                                : ours != nullptr
                                    ? error.what()
                                    : fmt::format("{}: the connection to process 0 is lost: {}",
                                                  meeting->name, first_line(error.what()));
      has_place_ = meeting->has_place;
      if (meeting->is_connected) {
        store_ = meeting->store;
        if (has_place_) {
          publish("members", end_text(stop != nullptr ? stop->signal_number() : 0, words));
        }
        leave(true);
      }
      if (stop != nullptr) throw Interrupted(stop->signal_number(), "while the processes met");
      if (ours != nullptr) throw;
      throw LostProcess("", words);
    }
    std::string reached = "127.0.0.1";
    for (const Json& member : members) {
      hosts_.push_back(member.at("host").get<std::string>());
      addresses_.push_back(member.at("address").get<std::string>());
      if (!is_loopback(addresses_.back())) reached = member.at("reached").get<std::string>();
    }
    // The first host's own name may stand for the loopback there, which no other host can reach.
    for (std::string& address : addresses_) address = is_loopback(address) ? reached : address;
    process.local_rank = process.local_size = 0;
    for (int other = 0; other < process.size; ++other) {
      // Containers on several hosts may have one name.
      const auto place = static_cast<std::size_t>(other);
      const bool here =
          members[place].at("machine") == this_machine() && addresses_[place] == own_address();
      process.local_size += here ? 1 : 0;
      process.local_rank += here && other < process.rank ? 1 : 0;
    }
  }
  // Process 0 stays until the others have left, or have heard why it fails.
  ~Job() { leave(std::uncaught_exceptions() > exceptions_); }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  const Store& store() const { return store_; }
  const std::string& own_address() const {
    return addresses_[static_cast<std::size_t>(process.rank)];
  }
  std::string name(int rank) const {
    return fmt::format("{} on host {}", process_name(rank, process.size),
                       hosts_[static_cast<std::size_t>(rank)]);
  }

  // Throws what has ended the job: LostProcess, or Interrupted by the signal that stopped a
  // process. If another one asks, says that this process waits.
  void check() {
    std::pair<std::string, bool> found;
    try {
      found = ask(kAnswer, [own = fmt::format("waits/{}", process.rank)](const Store& store) {
        const bool asked = store->check({"ask"});
        if (asked) set_first(store, own, "yes");
        return std::pair(find_text(store, "end"), asked);
      });
    } catch (const NoAnswer&) {
      return;  // its host may only pause, and every sum has a time limit
    } catch (const std::exception& error) {
      throw LostProcess(name(process.rank), lost_store(error));
    }
    if (!found.first.empty()) throw_end(name(process.rank), found.first);
  }

  // Ends the job for all processes, unless it has ended already, and throws why it has.
  [[noreturn]] void fail(const std::string& why) {
    publish("end", end_text(0, why));
    check();
    throw LostProcess(name(process.rank), why);
  }

  // Lets the others see a text, unless there is one. Where the store is gone, they notice that.
  void publish(const std::string& key, const std::string& text) noexcept {
    try {
      ask(kAnswer, [=](const Store& store) { set_first(store, key, text); });
    } catch (const std::exception&) {
    }
  }

  // The signal that asks one of the processes to stop; 0: none is known.
  int published_stop() {
    try {
      const auto stop = ask(kAnswer, [](const Store& store) { return find_text(store, "stop"); });
      return static_cast<int>(parse_integer(stop).value_or(0));
    } catch (const std::exception&) {
      return 0;
    }
  }

  // Puts into words whom the others wait for, after this error of Gloo:
  // "[./gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.0.0.2]:50382", or a timeout.
  std::string find_lost(const std::string& error) {
    const std::string line = first_line(error), words = line.substr(line.find("] ") + 2);
    const std::size_t begin = words.find('['), end = words.find(']');
    const bool closed = end != std::string::npos && begin < end;
    const std::string address = closed ? words.substr(begin + 1, end - begin - 1) : "";
    std::vector<int> silent;
    for (int rank = 0; rank < process.size; ++rank) {
      const bool there = !closed || addresses_[static_cast<std::size_t>(rank)] == address;
      if (rank != process.rank && there) silent.push_back(rank);
    }
    if (!closed || silent.size() > 1) {
      try {
        silent = ask(kRollCall + kAnswer,
                     [silent](const Store& store) { return call_roll(store, silent); });
      } catch (const NoAnswer&) {
        if (!closed && !process.launcher_answers) silent = {0};
      } catch (const std::exception& lost) {
        return lost_store(lost);
      }
    }
    std::vector<std::string> names;
    for (const int rank : silent) names.push_back(name(rank));
    const std::string who =
        names.empty() ? "another process" : fmt::format("{}", fmt::join(names, " or "));
    if (closed) return fmt::format("the connection to {} is lost: {}", who, words);
    if (names.empty()) return "all processes wait, and Gloo's connections carry nothing: " + words;
    return fmt::format("{} lets the others wait too long: {}", who, words);
  }

  LaunchedProcess process;

 private:
  // Those of `ranks` that do not say that they wait: they are gone, silent, or compute.
  static std::vector<int> call_roll(const Store& store, std::vector<int> ranks) {
    set_first(store, "ask", "yes");
    const auto waits = [&](int rank) { return store->check({fmt::format("waits/{}", rank)}); };
    for (const auto end = Clock::now() + kRollCall; !ranks.empty() && Clock::now() < end;) {
      ranks.erase(std::remove_if(ranks.begin(), ranks.end(), waits), ranks.end());
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return ranks;
  }

  std::string lost_store(const std::exception& error) const {
    return fmt::format("the connection to {} is lost: {}",
                       process.launcher_answers ? "torchrun" : name(0), first_line(error.what()));
  }

  void leave(bool fails) noexcept {
    const bool stays = process.rank == 0 && !process.launcher_answers;
    const auto time = fails ? kRollCall : kLeaving;
    try {
      ask(time + kAnswer, [=, gone = has_place_ ? 1 : 0](const Store& store) {
        store->add("gone", gone);
        const auto end = Clock::now() + time;
        while (stays && store->add("gone", 0) < store->add("here", 0) && Clock::now() < end) {
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
      });
    } catch (const std::exception&) {
      // Whoever else has failed says so; this process is done.
    }
  }

  int exceptions_ = std::uncaught_exceptions();  // under way when the job began
  Store store_;
  bool has_place_ = true;                       // among the others
  std::vector<std::string> hosts_, addresses_;  // by rank
  Clock::time_point ask_again_;
};

// Lets a process that takes itself for the only one of its job hear of others. It then stops in
// good order, by a signal.
void listen_for_others(const LaunchedProcess& process, Seconds patience) {
  std::thread([process, patience] {
    try {
      for (Job job(process, patience);; job.check()) std::this_thread::sleep_for(kLook);
    } catch (const LostProcess& error) {
      log_line(LogLevel::kQuiet, fmt::format("error: {}", error.what()));
      ::kill(::getpid(), SIGTERM);
    } catch (const std::exception&) {
      // The port is not free, so nobody finds this process.
    }
  }).detach();
}

}  // namespace

struct ProcessGroup::State {
  State(const LaunchedProcess& process, Seconds the_patience)
      : patience(the_patience), job(process, patience) {
    try {
      gloo = within(patience + kRollCall, false,
                    [time = patience, store = job.store(), process, address = job.own_address()] {
                      auto options = c10d::ProcessGroupGloo::Options::create(time);
                      const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
                      options->devices.push_back(
                          interface != nullptr
                              ? c10d::ProcessGroupGloo::createDeviceForInterface(interface)
                              : c10d::ProcessGroupGloo::createDeviceForHostname(address));
                      options->threads = 1;
                      return c10::make_intrusive<c10d::ProcessGroupGloo>(store, process.rank,
                                                                         process.size, options);
                    });
    } catch (const Interrupted& stop) {
      end_by(stop.signal_number());
    } catch (const std::exception& error) {
      job.fail(
          fmt::format("{}: cannot connect to the others from {}: {}; see that the hosts reach "
                      "each other there, or name another network interface in "
                      "GLOO_SOCKET_IFNAME",
                      job.name(process.rank), job.own_address(), first_line(error.what())));
    }
  }

  // Gloo's own end would wait for a sum that is under way, and whoever fails cannot.
  ~State() {
    if (std::uncaught_exceptions() > exceptions) gloo.release();
  }

  [[noreturn]] void end_by(int signal) {
    const std::string words = "while it waited for the others";
    job.publish("end",
                end_text(signal, fmt::format("{}, in {}", words, job.name(job.process.rank))));
    throw Interrupted(signal, words);
  }

  // Looks for reasons not to wait any longer.
  void look() {
    job.check();
    const int signal = stop_signal();
    if (signal == 0) return;
    if (!stop_at) {
      job.publish("stop", std::to_string(signal));
      stop_at = Clock::now() + kLastWait;
    }
    if (Clock::now() > *stop_at) end_by(signal);
  }

  int exceptions = std::uncaught_exceptions();  // under way when the group was made
  Seconds patience;
  Job job;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo;
  std::shared_ptr<DeviceSum> device;         // absent until join_device()
  std::optional<Clock::time_point> stop_at;  // a signal ends all waiting then
  Clock::time_point looked_at = Clock::now();
};

ProcessGroup::ProcessGroup(const LaunchedProcess& process, std::chrono::seconds patience)
    : state_(std::make_unique<State>(process, patience)) {
  // A process may be done as soon as it is connected. Those that still connect would take its end
  // for a failure, so nobody goes on before all are connected.
  sum(at::zeros({1}));
}

ProcessGroup::~ProcessGroup() = default;
int ProcessGroup::rank() const { return state_->job.process.rank; }
int ProcessGroup::size() const { return state_->job.process.size; }
int ProcessGroup::local_rank() const { return state_->job.process.local_rank; }
int ProcessGroup::local_size() const { return state_->job.process.local_size; }

void ProcessGroup::check_for_stop() {
  ql::check_for_stop();
  if (Clock::now() < state_->looked_at + kLook) return;
  state_->looked_at = Clock::now();
  if (const int signal = state_->job.published_stop(); signal != 0) throw Interrupted(signal);
}

void ProcessGroup::publish_failure(const std::exception& error) noexcept {
  if (dynamic_cast<const LostProcess*>(&error) != nullptr) return;
  const auto* stop = dynamic_cast<const Interrupted*>(&error);
  try {
    const std::string own = state_->job.name(rank());
    state_->job.publish("end", stop != nullptr
                                   ? end_text(stop->signal_number(), "in " + own)
                                   : end_text(0, fmt::format("{}: {}", own, failure_text(error))));
  } catch (const std::exception&) {
    // No memory for the words: that this process is gone is noticed all the same.
  }
}

ProcessGroup::Wait ProcessGroup::start_sum(std::vector<at::Tensor> tensors) {
  if (state_->device && !tensors.front().is_cpu()) {
    state_->device->enqueue(tensors.front());
    return [] {};
  }
  const c10::intrusive_ptr<c10d::Work> work = tensors.size() == 1
                                                  ? state_->gloo->allreduce(tensors)
                                                  : state_->gloo->allreduce_coalesced(tensors);
  return [state = state_.get(), work] {
    for (;; state->look()) {
      try {
        if (is_done(*work)) return;
      } catch (const std::exception& error) {
        state->job.check();
        state->job.fail(state->job.find_lost(error.what()));
      }
    }
  };
}

void ProcessGroup::join_device(const at::Device& device) {
  if (device.is_cpu()) return;
  DeviceSum::require(device);
  const std::string address = from_first(is_first() ? DeviceSum::make_address() : "");
  try {
    state_->device = within(state_->patience, false, [=, rank = rank(), size = size()] {
      const auto sums = std::make_shared<DeviceSum>(device, rank, size, address);
      // The first sum connects the GPUs.
      sums->enqueue(at::zeros({1}, at::TensorOptions(at::kFloat).device(device)));
      sums->wait_for_end();
      return sums;
    });
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(state_->job.name(rank()),
                fmt::format("NCCL does not connect the GPUs: {}", first_line(error.what())),
                "see that every process has a GPU of its own; with NCCL_DEBUG=WARN in the "
                "environment NCCL says more");
  }
}

// A GPU waits for the others without an end, and a process with such a GPU cannot end in good
// order.
void ProcessGroup::await_device() {
  if (!state_->device) return;
  state_->device->wait_for_begin();
  const auto begin = Clock::now();
  auto looked_at = begin;
  try {
    while (!state_->device->has_ended()) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      if (Clock::now() < looked_at + kLook) continue;
      looked_at = Clock::now();
      state_->look();
      if (looked_at > begin + state_->patience) {
        state_->job.fail(state_->job.find_lost("[NCCL] no sum in time"));
      }
    }
  } catch (const std::exception& error) {
    log_line(LogLevel::kQuiet, fmt::format("error: {}", error.what()));
    std::_Exit(static_cast<int>(ExitCode::kFailed));
  }
}

// Bit patterns are added up as whole numbers. All other processes add zeros, so not even the sign
// of a zero changes.
at::Tensor ProcessGroup::all_rows(const at::Tensor& own, std::int64_t rows) {
  std::vector<std::int64_t> shape = own.sizes().vec();
  shape[0] = rows;
  const at::Tensor all = at::zeros(shape, own.options().device(at::kCPU));
  const RowRange share = share_of(rows);
  all.narrow(0, share.first, share.count).copy_(own);
  sum(all.view(at::kInt));
  return all;
}

std::int64_t ProcessGroup::from_first(std::int64_t value) {
  const at::Tensor all = at::full({1}, is_first() ? value : 0, at::kLong);
  sum(all);
  return all.item<std::int64_t>();
}

std::vector<std::string> ProcessGroup::gather(const std::string& text) {
  const at::Tensor lengths = at::zeros({size()}, at::kLong);
  auto* length = lengths.data_ptr<std::int64_t>();
  length[rank()] = static_cast<std::int64_t>(text.size());
  sum(lengths);
  const at::Tensor bytes = at::zeros({lengths.sum().item<std::int64_t>() + 1}, at::kByte);
  auto* next = reinterpret_cast<char*>(bytes.data_ptr<std::uint8_t>());
  std::memcpy(std::accumulate(length, length + rank(), next), text.data(), text.size());
  sum(bytes);
  std::vector<std::string> texts;
  for (int other = 0; other < size(); next += length[other++]) {
    texts.emplace_back(next, static_cast<std::size_t>(length[other]));
  }
  return texts;
}

void ProcessGroup::require_same(const std::vector<Fact>& facts, const std::string& remedy) {
  Json own = Json::array();
  for (const Fact& fact : facts) own.push_back({fact.name, fact.value});
  const std::vector<std::string> all = gather(own.dump());
  const auto other = std::find_if(all.begin(), all.end(),
                                  [&](const std::string& text) { return text != all.front(); });
  if (other == all.end()) return;
  const Json first = Json::parse(all.front()), second = Json::parse(*other);
  std::size_t at = 0;
  while (at < first.size() && at < second.size() && first[at] == second[at]) ++at;
  const auto value = [at](const Json& of_process) {
    return at < of_process.size() ? of_process[at][1].get<std::string>() : "nothing";
  };
  throw LostProcess(
      (at < second.size() ? second : first)[at][0].get<std::string>(),
      fmt::format("{} has {}, {} has {}", state_->job.name(static_cast<int>(other - all.begin())),
                  value(second), state_->job.name(0), value(first)),
      remedy);
}

int ProcessGroup::agree_on_stop(int signal_number, double* clock) {
  const at::Tensor votes = at::zeros({1 + std::int64_t{kStopSignals.size()}}, at::kDouble);
  auto* vote = votes.data_ptr<double>();
  if (clock != nullptr && is_first()) vote[0] = *clock;
  for (std::size_t i = 0; i < kStopSignals.size(); ++i) {
    if (kStopSignals[i] == signal_number) vote[1 + i] = 1;
  }
  sum(votes);
  if (clock != nullptr) *clock = vote[0];
  for (std::size_t i = 0; i < kStopSignals.size(); ++i) {
    if (vote[1 + i] > 0) return kStopSignals[i];
  }
  return 0;
}

#else

struct ProcessGroup::State {};

namespace {
void listen_for_others(const LaunchedProcess&, std::chrono::seconds) {}
}  // namespace

ProcessGroup::ProcessGroup(const LaunchedProcess&, std::chrono::seconds) {
  throw Error("several processes", "this program was built without Gloo",
              "install libgloo-dev and build again, or use one process");
}
ProcessGroup::~ProcessGroup() = default;
int ProcessGroup::rank() const { return 0; }
int ProcessGroup::size() const { return 1; }
int ProcessGroup::local_rank() const { return 0; }
int ProcessGroup::local_size() const { return 1; }
void ProcessGroup::check_for_stop() {}
void ProcessGroup::publish_failure(const std::exception&) noexcept {}
ProcessGroup::Wait ProcessGroup::start_sum(std::vector<at::Tensor>) { return {}; }
void ProcessGroup::join_device(const at::Device&) {}
void ProcessGroup::await_device() {}
at::Tensor ProcessGroup::all_rows(const at::Tensor& own, std::int64_t) { return own; }
std::int64_t ProcessGroup::from_first(std::int64_t value) { return value; }
std::vector<std::string> ProcessGroup::gather(const std::string& text) { return {text}; }
void ProcessGroup::require_same(const std::vector<Fact>&, const std::string&) {}
int ProcessGroup::agree_on_stop(int signal_number, double*) { return signal_number; }

#endif

std::unique_ptr<ProcessGroup> join_processes(std::chrono::seconds patience) {
  const std::optional<LaunchedProcess> process = find_launched_process();
  if (!process) return nullptr;
  if (process->size == 1) {
    const bool by_hand = process->job.empty() && process->address != LaunchedProcess().address;
    if (by_hand) listen_for_others(*process, patience);
    return nullptr;
  }
  auto group = std::make_unique<ProcessGroup>(*process, patience);
  if (process->rank > 0) set_log_level(LogLevel::kQuiet);
  return group;
}

void run_in_group(ProcessGroup* group, const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {
    if (group != nullptr) group->publish_failure(error);
    throw;
  }
}

RowRange ProcessGroup::share_of(std::int64_t rows) const {
  if (rows < size()) {
    throw Error(process_name(rank(), size()),
                fmt::format("{} rows cannot be shared among {} processes", rows, size()),
                "use fewer processes, or a larger batch");
  }
  const std::int64_t first = rows * rank() / size();
  return {first, rows * (rank() + 1) / size() - first};
}

}  // namespace ql::machine
