// Reads and encodes the items of qleval and qlgen --items in a process of its own, because
// SentencePiece and LibTorch cannot be in one process.
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <optional>

#include "base/data_input.h"
#include "base/error.h"
#include "base/process.h"
#include "base/rows.h"
#include "checkpoint_text.h"
#include "tables.h"
#include "text/items.h"
#include "text/text_reader.h"

namespace {

using namespace ql;

// Calls use(line, number) for each line of a file or pipe, and pause() before it waits for more.
void read_lines(const std::string& path,
                const std::function<void(std::string_view line, std::int64_t number)>& use,
                const std::function<void()>& pause) {
  DataInput input(path, Content::kJson);
  std::string rest;
  std::array<char, 1 << 16> bytes{};
  std::int64_t number = 0;
  for (bool more = true; more;) {
    if (!input.has_more()) pause();
    const std::string_view read(bytes.data(), input.read(bytes.data(), bytes.size()));
    more = !read.empty();
    rest += read;
    // Lines up to the last line feed are complete, and at the end all are.
    const std::size_t feed = read.rfind('\n');
    if (more && feed == std::string_view::npos) continue;
    const std::size_t end = more ? rest.size() - read.size() + feed + 1 : rest.size();
    for (text::LineSplitter lines(std::string_view(rest).substr(0, end)); lines.next();) {
      use(lines.line(), ++number);
    }
    rest.erase(0, end);
  }
}

// Writes records, one a line, to the program that scores or continues them.
class Records {
 public:
  explicit Records(int pipe) : pipe_(pipe) {}
  void put(const Json& record) {
    buffer_ += json_line(record) + "\n";
    if (buffer_.size() > (std::size_t{1} << 16)) flush();
  }
  void flush() {
    pipe_.write(buffer_.data(), buffer_.size(), "pipe");
    buffer_.clear();
  }

 private:
  Descriptor pipe_;
  std::string buffer_;
};

// Holds what is needed to encode for one checkpoint.
struct CheckpointText {
  explicit CheckpointText(const std::string& checkpoint) {
    try {
      vocabulary = checkpoint_vocabulary(checkpoint, text, "give ids in place of text");
    } catch (const Error& error) {
      if (std::filesystem::exists(vocabulary_file(checkpoint))) throw;
      missing = error.what();
    }
    encoder.emplace(vocabulary ? &*vocabulary : nullptr, missing);
  }
  std::string text;     // the file of the vocabulary
  std::string missing;  // says why there is no vocabulary
  std::optional<text::Vocabulary> vocabulary;
  std::optional<text::ItemEncoder> encoder;
};

void put_item(const text::ItemEncoder& encoder, const Options& options, std::string_view line,
              std::int64_t number, Records& records) {
  const std::string file = options.text("items");
  const std::string where =
      fmt::format("{}: line {}", file == "-" ? "standard input" : file, number);
  Json item = text::parse_item(line, where);
  Json record = encoder.encode(item, where);
  record["number"] = number;
  record["where"] = where;
  record["answer"] = item.value("answer", Json());
  for (const char* key : {"context", "choices", "answer"}) item.erase(key);
  record["keys"] = std::move(item);
  records.put(record);
}

// For each checkpoint writes vocabulary_record(), its items, and an empty record. Before
// it waits for items, it writes a record that says so.
void put_all(const Options& options, const std::vector<std::string>& checkpoints,
             Records& records) {
  // A pipe can be read only once.
  const bool keep =
      checkpoints.size() > 1 && !std::filesystem::is_regular_file(options.text("items"));
  std::vector<std::string> kept;
  for (std::size_t i = 0; i < checkpoints.size(); ++i) {
    const CheckpointText text(checkpoints[i]);
    const auto& vocabulary = text.vocabulary;
    records.put(vocabulary_record(vocabulary ? &*vocabulary : nullptr, text.text, text.missing));
    const auto put = [&](std::string_view line, std::int64_t number) {
      if (keep && i == 0) kept.emplace_back(line);
      put_item(*text.encoder, options, line, number, records);
    };
    if (keep && i > 0) {
      for (std::size_t line = 0; line < kept.size(); ++line) {
        put(kept[line], static_cast<std::int64_t>(line) + 1);
      }
    } else {
      read_lines(options.text("items"), put, [&] {
        records.put({{"wait", true}});
        records.flush();
      });
    }
    records.put(Json::object());
  }
}

}  // namespace

void pipe_items(const Options& options, const std::vector<std::string>& checkpoints) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw SystemError("--items", "open a pipe", errno);
  Descriptor read_end(ends[0]);
  const pid_t scorer = ::getpid();
  // The encoder ignores stop signals, and ends when the scorer has ended. If it ended first, the
  // scorer would meet the end of its items before it sees its own signal.
  const sigset_t stops = stop_signals();
  sigset_t before;
  ::pthread_sigmask(SIG_BLOCK, &stops, &before);
  const pid_t child = ::fork();
  const int failed = errno;
  if (child == 0) {
    for (const int signal_number : kStopSignals) std::signal(signal_number, SIG_IGN);
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (child < 0) throw SystemError("--items", "start a process", failed);
  if (child > 0) {
    const Descriptor write_end(ends[1]);
    read_end.become_standard_input("--items");
    return;
  }
  // This process must not go on reading standard input when the other one has ended.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != scorer) ::_exit(0);
  read_end.close();
  Records records(ends[1]);
  try {
    try {
      put_all(options, checkpoints, records);
    } catch (const Error& error) {
      // The items before this one are scored first. Then the scorer throws the error.
      const bool usage = dynamic_cast<const UsageError*>(&error) != nullptr;
      records.put({{"error", error.what()}, {"usage", usage}});
    }
    records.flush();
  } catch (const std::exception&) {
    ::_exit(1);  // the scorer has ended, or a signal asked for a stop
  }
  ::_exit(0);
}
