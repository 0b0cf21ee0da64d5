// Draws the states of a network over time as SVG, in the manner of the paper's figure 5.

#include <fmt/ranges.h>

#include "qlctx_report.h"

namespace ql::ctx {

// A drawing with more tokens or more rows of states than these would be too dense to show anything.
constexpr std::int64_t kMostTokens = 1024;
constexpr std::size_t kMostRows = 64;

// These are distances in pixels.
constexpr double kRowDistance = 31, kScaleDistance = 20;
constexpr double kLeft = 150, kRight = 165, kTop = 78, kBottom = 124;  // margins
constexpr double kState = 15;                                          // height of a state
constexpr double kTokensWidth = 1000, kSmallestToken = 2.5, kLargestToken = 30;
constexpr double kPast = 7;  // height of a state that no memory holds any longer
constexpr double kSmallestWidth = 780;
constexpr double kLane = 9;  // distance between the lines that lead to the average

// Shapes distinguish the kinds of states even without colors: rectangle (segment), pill (memory),
// hexagon (compressed).
constexpr const char* kStyle = R"(
  text { font-family: sans-serif; font-size: 12px; fill: #222; }
  .small { font-size: 10px; fill: #555; }
  .large { font-size: 15px; font-weight: bold; }
  .segment, .memory, .compressed { fill: #fff; stroke-width: 1; }
  .segment { stroke: #14497f; }
  .memory { stroke: #b4571a; }
  .compressed { stroke: #6b2c86; }
  .segment.in { fill: #2f76b8; }
  .memory.in { fill: #f2a869; }
  .compressed.in { fill: #c79bdb; }
  .chosen { stroke: #000; stroke-width: 2; }
  .past { fill: #b9b9b9; }
  .cone { fill: #2f76b8; fill-opacity: 0.1; }
  .now { fill: #f4f1e6; }
  .step { stroke: #ddd; stroke-width: 1; }
  .line { fill: none; stroke: #222; stroke-width: 1; }
  .lane { fill: none; stroke: #444; stroke-width: 1.2; }
  .dashed { fill: none; stroke: #222; stroke-width: 1; stroke-dasharray: 3 3; }
)";

namespace {

std::string minus(std::int64_t tokens) {
  return tokens == 0 ? "t" : fmt::format("t \u2212 {}", tokens);
}

struct Interval {
  std::int64_t begin = INT64_MAX, end = INT64_MIN;  // tokens, relative to the segment's first
  bool empty() const { return begin >= end; }
};

// A drawing of a network's dependencies has a row for each stage, with the output at the top, and a
// column for each token. The cone has the states that the chosen output state depends on.
class Drawing {
 public:
  Drawing(const Row& row, std::int64_t position)
      : row_(row),
        position_(position),
        stages_(row.geometry.stages),
        segment_(row.geometry.lengths.segment),
        reach_(net::exact_lengths(row.geometry)[static_cast<std::size_t>(position)]) {
    check_size();
    cone_ = net::cone_of(row.geometry, position);
    for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
      Interval& extent = extents_.emplace_back();
      each_in_cone(stage, [&](std::int64_t begin) {
        extent.begin = std::min(extent.begin, begin);
        extent.end = std::max(extent.end, begin + stages_[stage].stride);
      });
      first_ = std::min({first_, extent.begin, window_begin(stage)});
    }
    token_ = std::clamp(kTokensWidth / static_cast<double>(segment_ - first_), kSmallestToken,
                        kLargestToken);
    double y = kTop;
    for (std::size_t stage = stages_.size(); stage-- > 0;) {
      heights_.push_back(y);
      const bool new_scale = stages_[stage].source == net::Stage::Source::kCompressed ||
                             stages_[stage].source == net::Stage::Source::kAveraged;
      y += kRowDistance + (new_scale ? kScaleDistance : 0);
    }
    std::reverse(heights_.begin(), heights_.end());
  }

  std::string draw() {
    const double width = std::max(x(segment_) + kRight, kSmallestWidth),
                 height = heights_.front() + kState + kBottom;
    line(R"(<?xml version="1.0" encoding="UTF-8"?>)");
    line(
        R"(<svg xmlns="http://www.w3.org/2000/svg" version="1.1" width="{0:.0f}" height="{1:.0f}" )"
        R"(viewBox="0 0 {0:.0f} {1:.0f}">)",
        width, height);
    line("<title>{}</title>\n<desc>{}</desc>", title(), description());
    line("<style type=\"text/css\">{}</style>", kStyle);
    line(R"(<rect x="0" y="0" width="{:.0f}" height="{:.0f}" fill="#fff"/>)", width, height);
    text(kLeft, 24, "large", title());
    text(kLeft, 42, "", subtitle());
    draw_steps();
    for (std::size_t stage = 1; stage < stages_.size(); ++stage) {
      draw_cone(stage, heights_[stage] + kState, stage - 1, heights_[stage - 1]);
    }
    for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
      draw_cone(stage, heights_[stage], stage, heights_[stage] + kState);
    }
    draw_lanes();
    for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
      draw_past(stage);
      draw_memory(stage);
      draw_segment(stage);
      text(kLeft - 16, heights_[stage] + 12, "", label(stage), "end");
    }
    draw_pointer();
    draw_scale_labels();
    draw_axis();
    draw_legend(height - 22);
    line("</svg>");
    return std::move(out_);
  }

 private:
  void check_size() const {
    std::int64_t states = 0;
    for (const net::Stage& stage : stages_) {
      states = std::max(states, stage.stride * (stage.segment + stage.memory) +
                                    stage.compressed_memory * row_.geometry.rate);
    }
    const std::int64_t tokens = std::max(reach_ + segment_ - position_, states);
    if (tokens > kMostTokens || stages_.size() > kMostRows) {
      throw Error("--format svg",
                  fmt::format("a drawing has at most {} tokens and {} rows of states, but this "
                              "network needs {} and {}",
                              kMostTokens, kMostRows, tokens, stages_.size()),
                  "draw a network of the same kind with shorter lengths or fewer layers");
    }
  }

  // Calls visit() with the first token of each state of `stage` that the chosen output state
  // depends on.
  template <typename Visit>
  void each_in_cone(std::size_t stage, const Visit& visit) const {
    for (std::size_t k = 0; k < cone_[stage].size(); ++k) {
      for (std::size_t i = 0; i < cone_[stage][k].size(); ++i) {
        if (cone_[stage][k][i]) {
          visit(net::first_token(stages_[stage],
                                 {static_cast<std::int64_t>(k), static_cast<std::int64_t>(i)}));
        }
      }
    }
  }

  // Returns the first token of the oldest state in the stage's window.
  std::int64_t window_begin(std::size_t stage) const {
    const net::Stage& here = stages_[stage];
    return first_token(stage, -here.memory - here.compressed_memory * row_.geometry.rate);
  }

  // Returns the first token of a state of the segment or, for an index below 0, of the memory.
  std::int64_t first_token(std::size_t stage, std::int64_t index) const {
    return net::first_token(stages_[stage], net::origin_of(stages_[stage], index));
  }

  // Returns true when the chosen output state depends on this state.
  bool in_cone(std::size_t stage, std::int64_t index) const {
    const net::Origin origin = net::origin_of(stages_[stage], index);
    const auto step = static_cast<std::size_t>(origin.steps_back);
    return step < cone_[stage].size() && cone_[stage][step][static_cast<std::size_t>(origin.index)];
  }

  // Returns the left end of a token, in pixels.
  double x(std::int64_t at) const { return kLeft + static_cast<double>(at - first_) * token_; }

  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }

  template <typename... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    add(format, std::forward<Args>(args)...);
    out_ += '\n';
  }

  void text(double at_x, double at_y, const char* style, const std::string& words,
            const char* anchor = "start") {
    line(R"(<text x="{:.1f}" y="{:.1f}" class="{}" text-anchor="{}">{}</text>)", at_x, at_y, style,
         anchor, words);
  }

  std::string title() const {
    const net::Lengths& lengths = row_.geometry.lengths;
    std::string words =
        fmt::format("{}, segment {}, memory {}", net::to_text(row_.network.architecture),
                    lengths.segment, lengths.memory);
    if (lengths.compressed_memory > 0) {
      words += fmt::format(", compressed memory {}", lengths.compressed_memory);
    }
    return words;
  }

  std::string subtitle() const {
    const std::vector<std::int64_t>& scales = row_.network.scales;
    std::string words = scales == std::vector<std::int64_t>{1}
                            ? "1 layer"
                            : fmt::format("{} layers", fmt::join(scales, " + "));
    if (row_.network.output_layers > 0) {
      words += fmt::format(", {} in the output block", row_.network.output_layers);
    }
    if (row_.network.scales.size() > 1 || row_.geometry.lengths.compressed_memory > 0) {
      words += fmt::format(", compression rate {}", row_.network.rate);
    }
    return words;
  }

  std::string description() const {
    return fmt::format(
        "Every row is a place of the network, the output at the top, the embedded tokens at the "
        "bottom. Rectangles are states of the current segment, pills states of memories, hexagons "
        "states of compressed memories. Those that the output state at position {} of {} depends "
        "on are filled; small grey blocks are states of earlier steps that it depends on and that "
        "no memory holds any more. The oldest token that it depends on is {} tokens before its "
        "own.",
        position_ + 1, segment_, reach_);
  }

  std::string label(std::size_t stage) const {
    std::string words;
    switch (stages_[stage].source) {
      case net::Stage::Source::kTokens:
        words = "embedded tokens";
        break;
      case net::Stage::Source::kLayer:
        words = fmt::format("layer {}", stages_[stage - 1].layer + 1);
        break;
      case net::Stage::Source::kCompressed:
        words = fmt::format("{} of {} states", net::to_text(row_.network.pool), row_.geometry.rate);
        break;
      case net::Stage::Source::kAveraged:
        words = "average of scales";
        break;
    }
    return stage + 1 == stages_.size() ? "output: " + words : words;
  }

  // Marks the current segment's tokens, and the places where earlier steps began.
  void draw_steps() {
    const double top = kTop - 26, bottom = heights_.front() + kState + 10;
    line(R"(<rect class="now" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>)", x(0), top,
         x(segment_) - x(0), bottom - top);
    text((x(0) + x(segment_)) / 2, top + 11, "small", "this step", "middle");
    if (static_cast<double>(segment_) * token_ < 6) return;
    for (std::int64_t begin = -segment_; begin >= first_; begin -= segment_) {
      line(R"(<path class="step" d="M{0:.1f} {1:.1f}V{2:.1f}"/>)", x(begin), top, bottom);
    }
  }

  // Draws the cone between two rows, or within one row.
  void draw_cone(std::size_t above, double top, std::size_t below, double bottom) {
    const Interval &high = extents_[above], &low = extents_[below];
    if (low.empty() || high.empty()) return;
    line(
        R"(<polygon class="cone" points="{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}"/>)",
        x(high.begin), top, x(high.end), top, x(low.end), bottom, x(low.begin), bottom);
  }

  // Draws the lines at the right that lead from the output of every scale to the average.
  void draw_lanes() {
    const net::Geometry& geometry = row_.geometry;
    if (!geometry.accumulates()) return;
    const double end = heights_[geometry.outputs.back() + 1] + kState / 2;
    double lane = x(segment_) + 8 + kLane * static_cast<double>(geometry.outputs.size());
    for (const std::size_t stage : geometry.outputs) {
      line(R"(<path class="lane" d="M{0:.1f} {1:.1f}H{2:.1f}V{3:.1f}H{4:.1f}"/>)", x(segment_) + 2,
           heights_[stage] + kState / 2, lane, end, x(segment_) + 8);
      lane -= kLane;
    }
    line(R"(<path d="M{0:.1f} {1:.1f}l7 -4v8z" fill="#444"/>)", x(segment_) + 2, end);
  }

  // Draws the states of the cone that no memory holds any longer. States in rows above depend on
  // them.
  void draw_past(std::size_t stage) {
    std::vector<std::int64_t> tokens;
    each_in_cone(stage, [&](std::int64_t first) {
      if (first < window_begin(stage)) tokens.push_back(first);
    });
    std::sort(tokens.begin(), tokens.end());
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    if (tokens.empty()) return;
    const double width = static_cast<double>(stages_[stage].stride) * token_;
    const double gap = std::min(1.5, width / 4);
    add(R"(<path class="past" d=")");
    for (const std::int64_t token : tokens) {
      add("M{:.1f} {:.1f}h{:.1f}v{}h-{:.1f}z", x(token) + gap / 2,
          heights_[stage] + (kState - kPast) / 2, width - gap, kPast, width - gap);
    }
    line("\"/>");
  }

  void draw_memory(std::size_t stage) {
    const net::Stage& here = stages_[stage];
    const std::int64_t rate = row_.geometry.rate;
    for (std::int64_t i = here.compressed_memory; i > 0; --i) {
      bool in = false;
      for (std::int64_t age = (i - 1) * rate; age < i * rate; ++age) {
        in = in || in_cone(stage, -1 - here.memory - age);
      }
      const double left = x(first_token(stage, -here.memory - i * rate)) + 1;
      const double width = static_cast<double>(rate) * token_ - 2;
      const double tip = std::min(width / 4, kState / 2), top = heights_[stage];
      line(
          R"(<path class="compressed{}" d="M{:.1f} {:.1f}l{:.1f} -{}h{:.1f}l{:.1f} {}l-{:.1f} {}h-{:.1f}z"/>)",
          in ? " in" : "", left, top + kState / 2, tip, kState / 2, width - 2 * tip, tip,
          kState / 2, tip, kState / 2, width - 2 * tip);
    }
    for (std::int64_t i = -here.memory; i < 0; ++i) {
      draw_state(stage, i, in_cone(stage, i) ? "memory in" : "memory", kState / 2);
    }
  }

  void draw_segment(std::size_t stage) {
    for (std::int64_t i = 0; i < stages_[stage].segment; ++i) {
      const bool chosen = stage + 1 == stages_.size() && i == position_;
      draw_state(stage, i,
                 chosen ? "segment in chosen" : (in_cone(stage, i) ? "segment in" : "segment"), 0);
    }
  }

  // Draws a pointer to the chosen state, which may be too narrow to show its frame.
  void draw_pointer() {
    line(R"(<path d="M{:.1f} {:.1f}l-5 -7h10z" fill="#000"/>)", x(position_) + token_ / 2,
         heights_.back() - 3);
  }

  void draw_state(std::size_t stage, std::int64_t index, const char* style, double round) {
    const double width = static_cast<double>(stages_[stage].stride) * token_;
    const double gap = std::min(2.0, width / 4);
    const double inner = width - gap;
    add(R"(<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{}")", style,
        x(first_token(stage, index)) + gap / 2, heights_[stage], inner, kState);
    if (round > 0) {
      add(R"( rx="{:.1f}" ry="{:.1f}")", std::min(round, inner / 2), std::min(round, inner / 2));
    }
    line("/>");
  }

  // Draws a label at the right of every scale and of the output block. The label describes their
  // states.
  void draw_scale_labels() {
    const std::size_t scales = row_.geometry.outputs.size();
    const double left = x(segment_) + 20 + kLane * static_cast<double>(scales);
    std::size_t first = 0;
    for (std::size_t last = 0; last < stages_.size(); ++last) {
      const net::Stage& stage = stages_[first];
      if (stages_[last].feeds_layer()) continue;
      const double middle = (heights_[first] + heights_[last]) / 2 - 2;
      text(left, middle, "",
           stage.scale == scales ? "output block" : fmt::format("scale {}", stage.scale + 1));
      text(left, middle + 14, "small", counted(stage.stride, "token") + " a state");
      std::string words = fmt::format("segment {}, memory {}", stage.segment, stage.memory);
      if (stage.compressed_memory > 0) words += fmt::format(" + {}", stage.compressed_memory);
      text(left, middle + 27, "small", words);
      first = last + 1;
    }
  }

  // Draws the axis of the tokens, and the context length of the chosen position.
  void draw_axis() {
    const double y = heights_.front() + kState + 16;
    const std::int64_t oldest = position_ - reach_;
    const auto middle = [&](std::int64_t token) { return x(token) + token_ / 2; };
    line(R"(<path class="line" d="M{:.1f} {:.1f}H{:.1f}"/>)", x(first_), y, x(segment_));
    std::int64_t distance = 1;
    while (static_cast<double>(distance) * token_ < 46) distance *= 2;
    for (std::int64_t back = 0; position_ - back >= first_; back += distance) {
      line(R"(<path class="line" d="M{:.1f} {:.1f}v4"/>)", middle(position_ - back), y);
      text(middle(position_ - back), y + 16, "small", minus(back), "middle");
    }
    const double arrow = y + 32;
    // The dashed lines leave a gap for the labels of the ticks.
    for (const std::int64_t token : {oldest, position_}) {
      line(R"(<path class="dashed" d="M{0:.1f} {1:.1f}V{2:.1f}M{0:.1f} {3:.1f}V{4:.1f}"/>)",
           middle(token), heights_.front() + kState + 2, y, y + 20, arrow + 6);
    }
    if (reach_ > 0) {
      line(R"(<path class="line" d="M{0:.1f} {1:.1f}H{2:.1f}"/>)", middle(oldest), arrow,
           middle(position_));
      line(R"(<path d="M{0:.1f} {2:.1f}l6 -3.5v7zM{1:.1f} {2:.1f}l-6 -3.5v7z" fill="#222"/>)",
           middle(oldest), middle(position_), arrow);
    }
    const bool wide = static_cast<double>(reach_) * token_ > 260;
    line(
        R"(<text id="context" x="{:.1f}" y="{:.1f}" text-anchor="{}">context length {}: oldest token )"
        "{}</text>",
        wide ? (middle(oldest) + middle(position_)) / 2 : x(first_), arrow + 18,
        wide ? "middle" : "start", reach_, minus(reach_));
  }

  void draw_legend(double y) {
    double at = kLeft;
    const auto item = [&](const std::string& shape, const std::string& words) {
      line("<g transform=\"translate({:.1f} {:.1f})\">{}</g>", at, y - 11, shape);
      text(at + 34, y, "", words);
      at += 54 + 6.2 * static_cast<double>(words.size());
    };
    // The shapes have no classes, because only states have the classes that draw_svg() documents.
    item(R"(<rect width="12" height="14" fill="#fff" stroke="#14497f"/>)"
         R"(<rect x="16" width="12" height="14" fill="#2f76b8" stroke="#14497f"/>)",
         "segment");
    if (row_.geometry.recurrent) {
      item(R"(<rect width="12" height="14" rx="6" fill="#fff" stroke="#b4571a"/>)"
           R"(<rect x="16" width="12" height="14" rx="6" fill="#f2a869" stroke="#b4571a"/>)",
           "memory");
    }
    if (row_.geometry.lengths.compressed_memory > 0) {
      item(R"(<path d="M0 7l4 -7h5l4 7l-4 7h-5z" fill="#fff" stroke="#6b2c86"/>)"
           R"(<path d="M16 7l4 -7h5l4 7l-4 7h-5z" fill="#c79bdb" stroke="#6b2c86"/>)",
           "compressed");
    }
    if (row_.geometry.recurrent) {
      item(R"(<rect x="8" y="4" width="12" height="7" fill="#b9b9b9"/>)", "of earlier steps");
    }
    text(at, y, "", "filled: the framed output state depends on it");
  }

  const Row& row_;
  std::int64_t position_;
  const std::vector<net::Stage>& stages_;
  std::int64_t segment_, reach_;
  net::Cone cone_;
  // By row: the tokens of the states that the chosen output state depends on.
  std::vector<Interval> extents_;
  std::int64_t first_ = 0;       // the first token of the drawing
  double token_ = 0;             // width of a token in pixels
  std::vector<double> heights_;  // by row: the upper end, in pixels
  std::string out_;
};

}  // namespace

std::string draw_svg(const Row& row, std::int64_t position) {
  return Drawing(row, position).draw();
}

}  // namespace ql::ctx
