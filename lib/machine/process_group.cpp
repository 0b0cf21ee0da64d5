#include "machine/process_group.h"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/signals.h"

#ifdef QL_GLOO
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/hash.h"
#include "base/launch.h"
#include "machine/device_sum_internal.h"
#include "machine/process_watch_internal.h"
#endif

namespace ql::machine {

namespace {

// Another process has failed, which all find out by themselves.
class LostProcess : public Error {
  using Error::Error;
};

}  // namespace

#ifdef QL_GLOO

namespace {

// The processes have so long to come, at least: schedulers start them one by one.
constexpr std::chrono::seconds kArrival{120};
// The others have so long at the end, when nothing is left to be computed.
constexpr std::chrono::seconds kLeaving{10};
// The watch finds out who fails: Gloo itself waits as long as the others live.
constexpr std::chrono::hours kForever{24 * 365};
// A process that has ended may have told why; its words may take so long to arrive.
constexpr std::chrono::seconds kTelling{2};

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// LibTorch from 2.4 on takes libuv for its store unless told otherwise, and refuses where it was
// built without, as distributions build it. Older ones do not have the option.
template <typename Options>
auto without_libuv(Options& options, int /*preferred*/) -> decltype(void(options.useLibUV)) {
  options.useLibUV = false;
}
template <typename Options>
void without_libuv(Options& /*options*/, long /*otherwise*/) {}

// The store of one start of the processes: torchrun keeps its store when it starts them anew.
c10::intrusive_ptr<c10d::Store> make_store(const LaunchedProcess& process, bool answers) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(process.port);
  options.isServer = answers;
  options.waitWorkers = false;
  options.timeout = kArrival;
  without_libuv(options, 0);
  try {
    return c10::make_intrusive<c10d::PrefixStore>(
        std::to_string(process.restart),
        c10::make_intrusive<c10d::TCPStore>(process.address, options));
  } catch (const std::exception& error) {
    throw Error(process_name(process.rank, process.size),
                fmt::format("cannot reach the others at {}:{}: {}", process.address, process.port,
                            first_line(error.what())),
                "look at the messages of process 0, and whether another program uses the port "
                "(MASTER_PORT)");
  }
}

std::shared_ptr<::gloo::transport::Device> make_device(const LaunchedProcess& process) {
  if (const char* name = std::getenv("GLOO_SOCKET_IFNAME")) {
    return c10d::ProcessGroupGloo::createDeviceForInterface(name);
  }
  // The host's name may not lead to an address of its own, which processes on one machine can do
  // without.
  return process.size == process.local_size
             ? c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")
             : c10d::ProcessGroupGloo::createDefaultDevice();
}

}  // namespace

struct ProcessGroup::State {
  State(const LaunchedProcess& the_process, std::chrono::seconds patience)
      : process(the_process), exceptions(std::uncaught_exceptions()) {
    join_launcher();
    store = make_store(process, process.rank == 0 && !process.launcher_answers);
    await_all();
    watch = std::make_unique<ProcessWatch>(make_store(process, false), process, patience,
                                           [](const std::string& verdict) {
                                             log_line(LogLevel::kQuiet, "error: " + verdict);
                                             std::_Exit(static_cast<int>(ExitCode::kFailed));
                                           });
    watch->set_waiting(true);
    try {
      connect();
    } catch (const std::exception& error) {
      const Error failure(process_name(process.rank, process.size),
                          fmt::format("cannot connect to the others: {}", first_line(error.what())),
                          "see that the machines reach each other by their host names, or name the "
                          "network interface in GLOO_SOCKET_IFNAME");
      watch->tell_failure(failure.what());
      throw Error(failure);
    }
    watch->set_waiting(false);
  }

  void connect() {
    auto options = c10d::ProcessGroupGloo::Options::create(kForever);
    options->devices.push_back(make_device(process));
    options->threads = 1;
    gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(store, process.rank, process.size, options);
  }

  void await_all() {
    const auto deadline = std::chrono::steady_clock::now() + kArrival;
    for (std::int64_t here = store->add("here", 1); here < process.size;
         here = store->add("here", 0)) {
      if (std::chrono::steady_clock::now() > deadline) {
        throw Error(process_name(process.rank, process.size),
                    fmt::format("only {} of {} processes have come in {} seconds", here,
                                process.size, kArrival.count()),
                    "start all of them, with the same MASTER_ADDR and MASTER_PORT");
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  // The store's process leaves last, or when the others have had time to hear why it fails.
  void leave(std::chrono::seconds patience) {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    watch->set_waiting(true);
    store->add("gone", 1);
    while (process.rank == 0 && store->add("gone", 0) < process.size &&
           std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  // The process whose connection is closed: Gloo refuses to receive from it.
  std::optional<int> find_ended() {
    std::vector<at::Tensor> nothing = {at::zeros({1})};
    for (int other = 0; other < process.size; ++other) {
      try {
        if (other != process.rank) gloo->recv(nothing, other, 0);
      } catch (const std::exception&) {
        return other;
      }
    }
    return std::nullopt;
  }

  // An exception of Gloo tells of a connection; who was at its end has to be found out. One that
  // has failed by itself has told why before it ended.
  [[noreturn]] void explain(const std::exception& error) {
    std::string why = watch->verdict(kTelling);
    if (const std::optional<int> ended = why.empty() ? find_ended() : std::nullopt) {
      // One that has named another before it ended itself is not the one.
      why = watch->tell_failure(process_name(*ended, process.size) + " has ended");
    } else if (why.empty()) {
      why = watch->verdict(kSilence + std::chrono::seconds(3));
    }
    if (why.empty()) {
      why = fmt::format("the connection to another process is lost: {}", first_line(error.what()));
    }
    throw LostProcess(process_name(process.rank, process.size), why);
  }

  LaunchedProcess process;
  int exceptions;  // under way when the group was made
  c10::intrusive_ptr<c10d::Store> store;
  std::unique_ptr<ProcessWatch> watch;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo;
  std::unique_ptr<DeviceSum> device;  // absent until join_device()
};

ProcessGroup::ProcessGroup(const LaunchedProcess& process, std::chrono::seconds patience)
    : state_(std::make_unique<State>(process, patience)) {
  // A process may be done as soon as it is connected. Those that still connect would take its end
  // for a failure, so nobody goes on before all are connected.
  sum(at::zeros({1}));
}

ProcessGroup::~ProcessGroup() {
  const bool fails = std::uncaught_exceptions() > state_->exceptions;
  try {
    state_->leave(fails ? kTelling : kLeaving);
  } catch (const std::exception&) {
    // Whoever else has failed says so; this process is done.
  }
}

int ProcessGroup::rank() const { return state_->process.rank; }
int ProcessGroup::size() const { return state_->process.size; }
int ProcessGroup::local_rank() const { return state_->process.local_rank; }
int ProcessGroup::local_size() const { return state_->process.local_size; }
void ProcessGroup::get_on() { state_->watch->get_on(); }

void ProcessGroup::tell_failure(const std::exception& error) noexcept {
  try {
    state_->watch->tell_failure(process_name(rank(), size()) + ": " + failure_text(error));
  } catch (const std::exception&) {
    // No memory for the words: that this process is gone is noticed all the same.
  }
}

ProcessGroup::Wait ProcessGroup::start_sum(std::vector<at::Tensor> tensors) {
  if (state_->device && !tensors.front().is_cpu()) {
    state_->watch->set_waiting(true);  // the first one connects the GPUs
    state_->device->enqueue(tensors.front());
    state_->watch->set_waiting(false);
    return [] {};
  }
  c10::intrusive_ptr<c10d::Work> work;
  try {
    work = tensors.size() == 1 ? state_->gloo->allreduce(tensors)
                               : state_->gloo->allreduce_coalesced(tensors);
  } catch (const std::exception& error) {
    state_->explain(error);
  }
  return [this, work] {
    state_->watch->set_waiting(true);
    try {
      work->wait();
    } catch (const std::exception& error) {
      state_->explain(error);
    }
    state_->watch->set_waiting(false);
    state_->watch->get_on();
  };
}

void ProcessGroup::join_device(const at::Device& device) {
  if (device.is_cpu()) return;
  DeviceSum::require(device);
  try {
    const std::string address = from_first(is_first() ? DeviceSum::make_address() : "");
    state_->watch->set_waiting(true);
    state_->device = std::make_unique<DeviceSum>(device, rank(), size(), address);
    state_->watch->set_waiting(false);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(process_name(rank(), size()),
                fmt::format("NCCL does not connect the GPUs: {}", first_line(error.what())),
                "see that every process has a GPU of its own; with NCCL_DEBUG=WARN in the "
                "environment NCCL says more");
  }
}

void ProcessGroup::await_device() {
  if (state_->device) {
    state_->device->wait_for_begin();
    state_->watch->set_waiting(true);
    state_->device->wait_for_end();
    state_->watch->set_waiting(false);
    state_->watch->get_on();
  }
}

std::int64_t ProcessGroup::from_first(std::int64_t value) {
  const at::Tensor whole = at::full({1}, is_first() ? value : 0, at::kLong);
  sum(whole);
  return whole.item<std::int64_t>();
}

std::string ProcessGroup::from_first(const std::string& text) {
  const std::int64_t length = from_first(static_cast<std::int64_t>(text.size()));
  if (length == 0) return "";
  const at::Tensor bytes = at::zeros({length}, at::kByte);
  if (is_first()) std::memcpy(bytes.data_ptr(), text.data(), text.size());
  sum(bytes);
  return {static_cast<const char*>(bytes.data_ptr()), static_cast<std::size_t>(length)};
}

void ProcessGroup::require_same(const std::string& text, const std::string& what) {
  const std::string own = content_hash(text);
  const auto length = static_cast<std::int64_t>(own.size());
  const at::Tensor all = at::zeros({size(), length}, at::kByte);
  std::memcpy(all.select(0, rank()).data_ptr(), own.data(), own.size());
  sum(all);
  std::vector<int> others;
  for (int other = 1; other < size(); ++other) {
    if (!all.select(0, other).equal(all.select(0, 0))) others.push_back(other);
  }
  if (!others.empty()) {
    throw Error(what,
                fmt::format("not the same in all {} processes: {} differ{} from process 0", size(),
                            fmt::join(others, ", "), others.size() == 1 ? "s" : ""),
                "start all with the same command and data, on processors of the same kind");
  }
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

ProcessGroup::ProcessGroup(const LaunchedProcess&, std::chrono::seconds) {
  throw Error("several processes", "this program was built without Gloo",
              "install libgloo-dev and build again, or use one process");
}
ProcessGroup::~ProcessGroup() = default;
int ProcessGroup::rank() const { return 0; }
int ProcessGroup::size() const { return 1; }
int ProcessGroup::local_rank() const { return 0; }
int ProcessGroup::local_size() const { return 1; }
void ProcessGroup::get_on() {}
void ProcessGroup::tell_failure(const std::exception&) noexcept {}
ProcessGroup::Wait ProcessGroup::start_sum(std::vector<at::Tensor>) { return {}; }
void ProcessGroup::join_device(const at::Device&) {}
void ProcessGroup::await_device() {}
std::int64_t ProcessGroup::from_first(std::int64_t value) { return value; }
std::string ProcessGroup::from_first(const std::string& text) { return text; }
void ProcessGroup::require_same(const std::string&, const std::string&) {}
int ProcessGroup::agree_on_stop(int signal_number, double*) { return signal_number; }

#endif

std::unique_ptr<ProcessGroup> join_processes(std::chrono::seconds patience) {
  const std::optional<LaunchedProcess> process = find_launched_process();
  if (!process || process->size == 1) return nullptr;
  if (process->rank > 0) set_log_level(LogLevel::kQuiet);
  return std::make_unique<ProcessGroup>(*process, patience);
}

void run_in_group(ProcessGroup* group, const std::function<void()>& work) {
  if (group == nullptr) {
    work();
    return;
  }
  try {
    work();
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& error) {
    if (dynamic_cast<const LostProcess*>(&error) == nullptr) group->tell_failure(error);
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
