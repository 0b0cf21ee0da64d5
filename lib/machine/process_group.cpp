// Computes sums over processes by Gloo and NCCL, and lets a group agree on values.
#include "machine/process_group.h"

#include <ATen/ATen.h>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <csignal>
#include <numeric>
#include <thread>

#include "base/json.h"
#include "base/log.h"
#include "base/process.h"
#include "base/strings.h"
#include "machine/job.h"

#ifdef QL_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#endif
#ifdef QL_NCCL
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/cuda/nccl.h>

#include <cstring>
#endif

namespace ql::machine {

namespace {

// A process checks at this interval for signals and for the end of the job.
constexpr std::chrono::seconds kLook{1};
// A signal may ask a process to stop while it waits in a collective call. The process then waits
// this long for the others to make this call, too, so that all stop together after a checkpoint.
// Schedulers kill a process 30 seconds after the signal.
constexpr std::chrono::seconds kLastWait{10};

// A GlooSum begins to add up a tensor by Gloo, in place.
using GlooSum = std::function<c10::intrusive_ptr<c10d::Work>(const at::Tensor&)>;

#ifdef QL_GLOO

constexpr const char* kGlooRemedy =
    "check that the other hosts can reach this host, or name another network interface in "
    "GLOO_SOCKET_IFNAME";

using GlooDevices = decltype(c10d::ProcessGroupGloo::Options::devices);

// Returns the devices of the interfaces in GLOO_SOCKET_IFNAME, separated by commas, or else of
// `address`.
GlooDevices open_gloo(const LaunchedProcess& process, const std::string& address) {
  const char* named = std::getenv("GLOO_SOCKET_IFNAME");
  const std::string interfaces = named == nullptr ? "" : named;
  GlooDevices devices;
  try {
    for (const std::string& interface : split(interfaces, ',')) {
      if (interface.empty()) continue;
      devices.push_back(c10d::ProcessGroupGloo::createDeviceForInterface(interface));
    }
    if (devices.empty()) {
      devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(address));
    }
    return devices;
  } catch (const std::exception& error) {
    throw Error(process_name(process.rank, process.size),
                fmt::format("cannot connect to the other processes from {}: {}",
                            interfaces.empty() ? address : interfaces, first_line(error.what())),
                kGlooRemedy);
  }
}

GlooSum connect_gloo(const Store& store, const LaunchedProcess& process, const GlooDevices& devices,
                     std::chrono::seconds patience) {
  try {
    auto options = c10d::ProcessGroupGloo::Options::create(patience);
    options->devices = devices;
    options->threads = 1;
    const auto gloo =
        c10::make_intrusive<c10d::ProcessGroupGloo>(store, process.rank, process.size, options);
    return [gloo](const at::Tensor& tensor) {
      std::vector<at::Tensor> in_place = {tensor};
      return gloo->allreduce(in_place);
    };
  } catch (const std::exception& error) {
    throw Error(process_name(process.rank, process.size),
                fmt::format("cannot connect to the other processes: {}", first_line(error.what())),
                kGlooRemedy);
  }
}

#else

using GlooDevices = int;

GlooDevices open_gloo(const LaunchedProcess&, const std::string&) {
  throw Error("several processes", "this program was built without Gloo",
              "install libgloo-dev and build again, or use one process");
}

// This function is never called, because open_gloo() throws.
GlooSum connect_gloo(const Store&, const LaunchedProcess&, const GlooDevices&,
                     std::chrono::seconds) {
  return {};
}

#endif

// DeviceSum adds up tensors on GPUs, one GPU per process, by the NCCL that is part of LibTorch. The
// processes find each other by the address that the first process makes. The constructor waits for
// all processes.

#ifdef QL_NCCL

namespace nccl = torch::cuda::nccl;

std::string device_sum_address(const c10::Device&, bool is_first) {
  nccl::ncclUniqueId id = {};
  if (is_first) nccl::get_unique_id(id);
  return {id.internal, sizeof id.internal};
}

class DeviceSum {
 public:
  DeviceSum(const c10::Device& device, int rank, int size, const std::string& address)
      : device_(device) {
    nccl::ncclUniqueId id = {};
    TORCH_CHECK(address.size() == sizeof id.internal, "an address of NCCL has another length");
    std::memcpy(id.internal, address.data(), address.size());
    const c10::cuda::CUDAGuard guard(device);
    communicator_ = nccl::comm_init_rank(size, id, rank);
    // The first sum connects the GPUs.
    enqueue(at::zeros({1}, at::TensorOptions(at::kFloat).device(device)));
    ends_.synchronize();
    under_way_ = false;
  }

  // Enqueues a sum on the current stream: a contiguous tensor on the device is added up, in place,
  // over all processes. All processes have to call this function in the same order.
  void enqueue(const at::Tensor& tensor) {
    const c10::cuda::CUDAGuard guard(device_);
    const auto stream = c10::cuda::getCurrentCUDAStream(device_.index());
    if (!under_way_) {
      begins_.record(stream);
      under_way_ = true;
    }
    std::vector<at::Tensor> in_place = {tensor};
    nccl::all_reduce(in_place, in_place, static_cast<std::int32_t>(nccl::ncclRedOp::Sum), {},
                     {communicator_});
    ends_.record(stream);
  }

  // Waits until the device reaches the first sum that was enqueued since has_ended() last returned
  // true. All work that this process enqueued before that sum is then done.
  void wait_for_begin() { begins_.synchronize(); }

  // Returns true when no sum is pending.
  bool has_ended() {
    under_way_ = under_way_ && !ends_.query();
    return !under_way_;
  }

 private:
  c10::Device device_;
  // The communicator exists until the process ends, because destroying it would wait for other
  // processes.
  nccl::ncclComm_t communicator_ = nullptr;
  at::cuda::CUDAEvent begins_, ends_;
  bool under_way_ = false;  // a sum was enqueued since has_ended() last returned true
};

#else

std::string device_sum_address(const c10::Device& device, bool) {
  throw UsageError("--device",
                   fmt::format("{}: this program was built with a LibTorch without NCCL, which "
                               "several processes on GPUs need",
                               device.str()),
                   "use one process, or build with a LibTorch for CUDA that has NCCL");
}

// An object of this type is never made, because device_sum_address() throws.
struct DeviceSum {
  DeviceSum(const c10::Device&, int, int, const std::string&) {}
  void enqueue(const at::Tensor&) {}
  void wait_for_begin() {}
  bool has_ended() { return true; }
};

#endif

}  // namespace

struct ProcessGroup::Others {
  Others(const LaunchedProcess& process, std::chrono::seconds the_patience)
      : patience(the_patience), job(process) {}

  // The destructor of Gloo's group would wait for a pending sum, and a process that fails cannot
  // wait. So the group is not destroyed while a sum is pending.
  ~Others() {
    if (pending > 0) static_cast<void>(gloo_sum.release());
  }

  // Throws if the job has ended, or if a signal has asked this process to stop and kLastWait has
  // passed since then. A LongWait has no such limit.
  void look() {
    job.check(true);
    const int signal = stop_signal();
    if (signal == 0 || long_waits > 0) return;
    if (!stop_at) {
      job.ask_to_stop(signal);
      stop_at = Clock::now() + kLastWait;
    }
    if (Clock::now() > *stop_at) throw Interrupted(signal, "while waiting for the other processes");
  }

  std::chrono::seconds patience;
  Job job;
  std::unique_ptr<GlooSum> gloo_sum;
  int pending = 0;                           // sums that Gloo has not finished yet
  int long_waits = 0;                        // LongWait objects
  std::shared_ptr<DeviceSum> device;         // absent until join_device()
  std::optional<Clock::time_point> stop_at;  // set by a signal: all waiting ends at this time
  Clock::time_point looked_at = Clock::now();
};

ProcessGroup::ProcessGroup() = default;

ProcessGroup& ProcessGroup::single() {
  static ProcessGroup group;
  return group;
}

ProcessGroup::ProcessGroup(const LaunchedProcess& process, std::chrono::seconds patience)
    : others_(std::make_unique<Others>(process, patience)) {
  run_in_group(*this, [&] {
    Job& job = others_->job;
    job.meet(patience);
    process_ = job.process();
    const std::string& address = job.address();
    GlooDevices devices;
    try {
      devices = within(patience, false, [=] { return open_gloo(process, address); });
    } catch (const NoAnswer&) {
      throw Error(address, "the look-up of this address takes too long",
                  "name a network interface in GLOO_SOCKET_IFNAME");
    }
    // Gloo waits for the addresses of all processes, even if one of them has failed.
    job.await_all(patience);
    others_->gloo_sum =
        std::make_unique<GlooSum>(within(2 * patience, false, [=, store = job.store()] {
          return connect_gloo(store, process, devices, patience);
        }));
    // A process may end as soon as it is connected. Processes that are still connecting would take
    // this end for a failure, so no process continues before all processes are connected.
    sum(at::zeros({1}));
  });
}

ProcessGroup::~ProcessGroup() = default;

ProcessGroup::LongWait::LongWait(ProcessGroup& group) : group_(group) {
  if (group_.others_) ++group_.others_->long_waits;
}

ProcessGroup::LongWait::~LongWait() {
  if (group_.others_) --group_.others_->long_waits;
}

void ProcessGroup::check_for_stop() {
  ql::check_for_stop();
  if (!others_) return;
  if (Clock::now() < others_->looked_at + kLook) return;
  others_->looked_at = Clock::now();
  if (const int signal = others_->job.check(false); signal != 0) throw Interrupted(signal);
}

void ProcessGroup::publish_failure(const std::exception& error) noexcept {
  if (others_) others_->job.end(error);
}

ProcessGroup::Wait ProcessGroup::start_sum(const at::Tensor& tensor) {
  if (!others_) return [] {};
  if (others_->device && !tensor.is_cpu()) {
    others_->device->enqueue(tensor);
    return [] {};
  }
  ++others_->pending;
  return [others = others_.get(), work = (*others_->gloo_sum)(tensor)] {
    while (!work->isCompleted()) {
      try {
        work->wait(kLook);
      } catch (const std::exception&) {
        if (!work->isCompleted()) others->look();
      }
    }
    --others->pending;
    try {
      work->wait();
    } catch (const std::bad_alloc&) {
      throw;  // the memory of this process does not suffice; no connection is lost
    } catch (const std::exception& error) {
      others->job.lose(error.what());
    }
  };
}

void ProcessGroup::join_device(const at::Device& device) {
  if (!others_ || device.is_cpu()) return;
  const std::string address = from_first(device_sum_address(device, is_first()));
  try {
    others_->device = within(others_->patience, false, [=, rank = rank(), size = size()] {
      return std::make_shared<DeviceSum>(device, rank, size, address);
    });
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& error) {
    others_->job.check(false);  // throws if another process has failed
    throw Error(others_->job.name(rank()),
                fmt::format("NCCL cannot connect the GPUs: {}", first_line(error.what())),
                "check that every process has a GPU of its own; with NCCL_DEBUG=WARN in the "
                "environment NCCL prints details");
  }
}

// A GPU that waits for a lost process never stops waiting. Then this process cannot end in good
// order, so std::_Exit() ends it.
void ProcessGroup::await_device() {
  if (!others_ || !others_->device) return;
  others_->device->wait_for_begin();
  const auto begin = Clock::now();
  auto looked_at = begin;
  try {
    while (!others_->device->has_ended()) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      if (Clock::now() < looked_at + kLook) continue;
      looked_at = Clock::now();
      others_->look();
      if (looked_at > begin + others_->patience) {
        others_->job.lose("[NCCL] an all-reduce did not end in time");
      }
    }
  } catch (const Interrupted& stop) {
    publish_failure(stop);
    log_info("{}", stop.what());
    std::_Exit(128 + stop.signal_number());
  } catch (const std::exception& error) {
    publish_failure(error);
    log_line(LogLevel::kQuiet, fmt::format("error: {}", error.what()));
    std::_Exit(static_cast<int>(ExitCode::kFailed));
  }
}

// Adds up the bit patterns as integers. Only the owner of a row adds bits of this row, and the
// other processes add zeros. So not even the sign of a zero changes.
at::Tensor ProcessGroup::all_rows(const at::Tensor& own, std::int64_t rows) {
  if (!others_) return own;
  std::vector<std::int64_t> shape = own.sizes().vec();
  shape[0] = rows;
  at::Tensor all = at::zeros(shape, own.options().device(at::kCPU));
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
  if (!others_) return {text};
  const at::Tensor lengths = at::zeros({size()}, at::kLong);
  auto* length = lengths.data_ptr<std::int64_t>();
  length[rank()] = static_cast<std::int64_t>(text.size());
  sum(lengths);
  const at::Tensor bytes = at::zeros({lengths.sum().item<std::int64_t>() + 1}, at::kByte);
  auto* next = reinterpret_cast<char*>(bytes.data_ptr<std::uint8_t>());
  std::copy(text.begin(), text.end(), std::accumulate(length, length + rank(), next));
  sum(bytes);
  std::vector<std::string> texts;
  for (int other = 0; other < size(); next += length[other++]) {
    texts.emplace_back(next, static_cast<std::size_t>(length[other]));
  }
  return texts;
}

void ProcessGroup::require_same(const std::vector<Fact>& facts, const std::string& remedy) {
  const std::vector<std::string> all = gather(Json(facts).dump());
  const auto other = std::find_if(all.begin(), all.end(),
                                  [&](const std::string& text) { return text != all.front(); });
  if (other == all.end()) return;
  const Json first = Json::parse(all.front()), second = Json::parse(*other);
  std::size_t at = 0;
  while (at < first.size() && at < second.size() && first[at] == second[at]) ++at;
  const auto value = [at](const Json& of_process) {
    return at < of_process.size() ? of_process[at][1].get<std::string>() : "nothing";
  };
  throw LostProcess((at < second.size() ? second : first)[at][0].get<std::string>(),
                    fmt::format("{} has {}, but {} has {}",
                                others_->job.name(static_cast<int>(other - all.begin())),
                                value(second), others_->job.name(0), value(first)),
                    remedy);
}

int ProcessGroup::agree_on_stop(int signal_number, double* clock) {
  const at::Tensor votes = at::zeros({NSIG}, at::kDouble);  // the clock, then one vote per signal
  auto* vote = votes.data_ptr<double>();
  if (signal_number != 0) vote[signal_number] = 1;
  if (clock != nullptr && is_first()) vote[0] = *clock;
  sum(votes);
  if (clock != nullptr) *clock = vote[0];
  const auto* first = std::find_if(kStopSignals.begin(), kStopSignals.end(),
                                   [&](int signal) { return vote[signal] > 0; });
  return first == kStopSignals.end() ? 0 : *first;
}

void run_in_group(ProcessGroup& group, const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {
    group.publish_failure(error);
    throw;
  }
}

void run_in_processes(std::chrono::seconds patience,
                      const std::function<void(ProcessGroup& group)>& work) {
  const std::optional<LaunchedProcess> process = find_launched_process();
  if (process && process->size > 1) {
    ProcessGroup group(*process, patience);
    if (process->rank > 0) set_log_level(LogLevel::kQuiet);
    run_in_group(group, [&] { work(group); });
    return;
  }
  if (process && process->job.empty() && process->address != LaunchedProcess().address) {
    listen_for_others(*process, patience);  // a user started this process without a launcher
  }
  work(ProcessGroup::single());
}

RowRange ProcessGroup::share_of(std::int64_t rows) const {
  if (rows < size()) {
    throw Error(
        process_name(rank(), size()),
        fmt::format("batch is {}, but {} processes need at least one row each", rows, size()),
        "use fewer processes, or a larger batch");
  }
  const std::int64_t first = rows * rank() / size();
  return {first, rows * (rank() + 1) / size() - first};
}

}  // namespace ql::machine
