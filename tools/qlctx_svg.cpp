// Implements the layout of a drawing and its SVG elements.

#include "qlctx_svg.h"

namespace ql::ctx {

// A drawing of more tokens or states would be too dense to show anything.
constexpr std::int64_t kMostTokens = 1024;
constexpr std::size_t kMostRows = 64;

// These are distances in pixels.
constexpr double kRowDistance = 31, kScaleDistance = 20;
constexpr double kTokensWidth = 1000, kSmallestToken = 2.5, kLargestToken = 30;

Layout::Layout(const Row& of_row, std::int64_t at_position)
    : row(of_row),
      position(at_position),
      stages(row.geometry.stages),
      segment(row.geometry.lengths.segment),
      reach(net::exact_lengths(row.geometry)[static_cast<std::size_t>(position)]) {
  check_size();
  cone = net::cone_of(row.geometry, position);
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    Interval& extent = extents.emplace_back();
    each_in_cone(stage, [&](std::int64_t begin) {
      extent.begin = std::min(extent.begin, begin);
      extent.end = std::max(extent.end, begin + stages[stage].stride);
    });
    first = std::min({first, extent.begin, window_begin(stage)});
  }
  token = std::clamp(kTokensWidth / static_cast<double>(segment - first), kSmallestToken,
                     kLargestToken);
  double y = kTop;
  for (std::size_t stage = stages.size(); stage-- > 0;) {
    heights.push_back(y);
    const bool new_scale = stages[stage].source == net::Stage::Source::kCompressed ||
                           stages[stage].source == net::Stage::Source::kAveraged;
    y += kRowDistance + (new_scale ? kScaleDistance : 0);
  }
  std::reverse(heights.begin(), heights.end());
}

void Layout::check_size() const {
  std::int64_t states = 0;
  for (const net::Stage& stage : stages) {
    states = std::max(states, stage.stride * (stage.segment + stage.memory) +
                                  stage.compressed_memory * row.geometry.rate);
  }
  const std::int64_t tokens = std::max(reach + segment - position, states);
  if (tokens > kMostTokens || stages.size() > kMostRows) {
    throw Error("--format svg",
                fmt::format("{} tokens and {} rows of states are too many for a drawing, which "
                            "shows {} and {} at most",
                            tokens, stages.size(), kMostTokens, kMostRows),
                "draw a network of the same kind with shorter lengths or fewer layers");
  }
}

std::int64_t Layout::window_begin(std::size_t stage) const {
  const net::Stage& here = stages[stage];
  return first_token(stage, -here.memory - here.compressed_memory * row.geometry.rate);
}

std::int64_t Layout::first_token(std::size_t stage, std::int64_t index) const {
  return net::first_token(stages[stage], net::origin_of(stages[stage], index));
}

bool Layout::in_cone(std::size_t stage, std::int64_t index) const {
  const net::Origin origin = net::origin_of(stages[stage], index);
  const auto step = static_cast<std::size_t>(origin.steps_back);
  return step < cone[stage].size() && cone[stage][step][static_cast<std::size_t>(origin.index)];
}

double Layout::x(std::int64_t at) const { return kLeft + static_cast<double>(at - first) * token; }

namespace {

constexpr double kPast = 7;  // height of a state that is in no memory
constexpr double kSmallestWidth = 780;
constexpr double kLane = 9;  // distance of the lines that lead to the average

// The shapes distinguish the kinds in black and white, too: rectangle, pill, hexagon.
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

std::string minus(std::int64_t tokens) {
  return tokens == 0 ? "t" : fmt::format("t \u2212 {}", tokens);
}

std::string count(std::int64_t number, const char* noun) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
}

class Drawing {
 public:
  Drawing(const Row& row, std::int64_t position) : layout_(row, position) {}

  std::string draw() {
    const double width = std::max(layout_.x(layout_.segment) + kRight, kSmallestWidth),
                 height = layout_.heights.front() + kState + kBottom;
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
    for (std::size_t stage = 1; stage < layout_.stages.size(); ++stage) {
      draw_cone(stage, layout_.heights[stage] + kState, stage - 1, layout_.heights[stage - 1]);
    }
    for (std::size_t stage = 0; stage < layout_.stages.size(); ++stage) {
      draw_cone(stage, layout_.heights[stage], stage, layout_.heights[stage] + kState);
    }
    draw_lanes();
    for (std::size_t stage = 0; stage < layout_.stages.size(); ++stage) {
      draw_past(stage);
      draw_memory(stage);
      draw_segment(stage);
      text(kLeft - 16, layout_.heights[stage] + 12, "", label(stage), "end");
    }
    draw_pointer();
    draw_scale_labels();
    draw_axis();
    draw_legend(height - 22);
    line("</svg>");
    return std::move(out_);
  }

 private:
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
    const net::Lengths& lengths = layout_.row.geometry.lengths;
    std::string words =
        fmt::format("{}, segment {}, memory {}", net::to_text(layout_.row.network.architecture),
                    lengths.segment, lengths.memory);
    if (lengths.compressed_memory > 0) {
      words += fmt::format(", compressed memory {}", lengths.compressed_memory);
    }
    return words;
  }

  std::string subtitle() const {
    const std::vector<std::int64_t>& scales = layout_.row.network.scales;
    std::string words = scales == std::vector<std::int64_t>{1}
                            ? "1 layer"
                            : fmt::format("{} layers", fmt::join(scales, " + "));
    if (layout_.row.network.output_layers > 0) {
      words += fmt::format(", {} in the output block", layout_.row.network.output_layers);
    }
    if (layout_.row.network.scales.size() > 1 ||
        layout_.row.geometry.lengths.compressed_memory > 0) {
      words += fmt::format(", compression rate {}", layout_.row.network.rate);
    }
    return words;
  }

  std::string description() const {
    return fmt::format(
        "Every row is a place of the network, the output at the top, the embedded tokens at the "
        "bottom. Rectangles are states of the current segment, pills states of memories, hexagons "
        "states of compressed memories. Filled are those that the output state at position {} of "
        "{} depends on; small grey blocks are states of earlier steps that it depends on and that "
        "no memory holds any more. The oldest token it depends on is {} tokens before its own.",
        layout_.position + 1, layout_.segment, layout_.reach);
  }

  std::string label(std::size_t stage) const {
    std::string words;
    switch (layout_.stages[stage].source) {
      case net::Stage::Source::kTokens:
        words = "embedded tokens";
        break;
      case net::Stage::Source::kLayer:
        words = fmt::format("layer {}", layout_.stages[stage - 1].layer + 1);
        break;
      case net::Stage::Source::kCompressed:
        words = fmt::format("{} of {} states", net::to_text(layout_.row.network.pool),
                            layout_.row.geometry.rate);
        break;
      case net::Stage::Source::kAveraged:
        words = "average of scales";
        break;
    }
    return stage + 1 == layout_.stages.size() ? "output: " + words : words;
  }

  // Draws the current segment's tokens, and where earlier steps began.
  void draw_steps() {
    const double top = kTop - 26, bottom = layout_.heights.front() + kState + 10;
    line(R"(<rect class="now" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>)",
         layout_.x(0), top, layout_.x(layout_.segment) - layout_.x(0), bottom - top);
    text((layout_.x(0) + layout_.x(layout_.segment)) / 2, top + 11, "small", "this step", "middle");
    if (static_cast<double>(layout_.segment) * layout_.token < 6) return;
    for (std::int64_t begin = -layout_.segment; begin >= layout_.first; begin -= layout_.segment) {
      line(R"(<path class="step" d="M{0:.1f} {1:.1f}V{2:.1f}"/>)", layout_.x(begin), top, bottom);
    }
  }

  // Draws the cone between two rows, or within one row.
  void draw_cone(std::size_t above, double top, std::size_t below, double bottom) {
    const Interval &high = layout_.extents[above], &low = layout_.extents[below];
    if (low.empty() || high.empty()) return;
    line(
        R"(<polygon class="cone" points="{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}"/>)",
        layout_.x(high.begin), top, layout_.x(high.end), top, layout_.x(low.end), bottom,
        layout_.x(low.begin), bottom);
  }

  // Lanes lead from the output of every scale to the average, at the right.
  void draw_lanes() {
    const net::Geometry& geometry = layout_.row.geometry;
    if (!geometry.accumulates()) return;
    const double end = layout_.heights[geometry.outputs.back() + 1] + kState / 2;
    double lane =
        layout_.x(layout_.segment) + 8 + kLane * static_cast<double>(geometry.outputs.size());
    for (const std::size_t stage : geometry.outputs) {
      line(R"(<path class="lane" d="M{0:.1f} {1:.1f}H{2:.1f}V{3:.1f}H{4:.1f}"/>)",
           layout_.x(layout_.segment) + 2, layout_.heights[stage] + kState / 2, lane, end,
           layout_.x(layout_.segment) + 8);
      lane -= kLane;
    }
    line(R"(<path d="M{0:.1f} {1:.1f}l7 -4v8z" fill="#444"/>)", layout_.x(layout_.segment) + 2,
         end);
  }

  // Draws dependencies on states that are in no memory any more but went into the states above
  // them.
  void draw_past(std::size_t stage) {
    std::vector<std::int64_t> tokens;
    layout_.each_in_cone(stage, [&](std::int64_t first) {
      if (first < layout_.window_begin(stage)) tokens.push_back(first);
    });
    std::sort(tokens.begin(), tokens.end());
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    if (tokens.empty()) return;
    const double width = static_cast<double>(layout_.stages[stage].stride) * layout_.token;
    const double gap = std::min(1.5, width / 4);
    add(R"(<path class="past" d=")");
    for (const std::int64_t token : tokens) {
      add("M{:.1f} {:.1f}h{:.1f}v{}h-{:.1f}z", layout_.x(token) + gap / 2,
          layout_.heights[stage] + (kState - kPast) / 2, width - gap, kPast, width - gap);
    }
    line("\"/>");
  }

  void draw_memory(std::size_t stage) {
    const net::Stage& here = layout_.stages[stage];
    const std::int64_t rate = layout_.row.geometry.rate;
    for (std::int64_t i = here.compressed_memory; i > 0; --i) {
      bool in = false;
      for (std::int64_t age = (i - 1) * rate; age < i * rate; ++age) {
        in = in || layout_.in_cone(stage, -1 - here.memory - age);
      }
      const double left = layout_.x(layout_.first_token(stage, -here.memory - i * rate)) + 1;
      const double width = static_cast<double>(rate) * layout_.token - 2;
      const double tip = std::min(width / 4, kState / 2), top = layout_.heights[stage];
      line(
          R"(<path class="compressed{}" d="M{:.1f} {:.1f}l{:.1f} -{}h{:.1f}l{:.1f} {}l-{:.1f} {}h-{:.1f}z"/>)",
          in ? " in" : "", left, top + kState / 2, tip, kState / 2, width - 2 * tip, tip,
          kState / 2, tip, kState / 2, width - 2 * tip);
    }
    for (std::int64_t i = -here.memory; i < 0; ++i) {
      draw_state(stage, i, layout_.in_cone(stage, i) ? "memory in" : "memory", kState / 2);
    }
  }

  void draw_segment(std::size_t stage) {
    for (std::int64_t i = 0; i < layout_.stages[stage].segment; ++i) {
      const bool chosen = stage + 1 == layout_.stages.size() && i == layout_.position;
      draw_state(
          stage, i,
          chosen ? "segment in chosen" : (layout_.in_cone(stage, i) ? "segment in" : "segment"), 0);
    }
  }

  // Draws a pointer for states that are too narrow to show their frame.
  void draw_pointer() {
    line(R"(<path d="M{:.1f} {:.1f}l-5 -7h10z" fill="#000"/>)",
         layout_.x(layout_.position) + layout_.token / 2, layout_.heights.back() - 3);
  }

  void draw_state(std::size_t stage, std::int64_t index, const char* style, double round) {
    const double width = static_cast<double>(layout_.stages[stage].stride) * layout_.token;
    const double gap = std::min(2.0, width / 4);
    const double inner = width - gap;
    add(R"(<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{}")", style,
        layout_.x(layout_.first_token(stage, index)) + gap / 2, layout_.heights[stage], inner,
        kState);
    if (round > 0) {
      add(R"( rx="{:.1f}" ry="{:.1f}")", std::min(round, inner / 2), std::min(round, inner / 2));
    }
    line("/>");
  }

  // Draws a label for every scale, at its right, that says what its states are.
  void draw_scale_labels() {
    const std::size_t scales = layout_.row.geometry.outputs.size();
    const double left = layout_.x(layout_.segment) + 20 + kLane * static_cast<double>(scales);
    std::size_t first = 0;
    for (std::size_t last = 0; last < layout_.stages.size(); ++last) {
      const net::Stage& stage = layout_.stages[first];
      if (layout_.stages[last].feeds_layer()) continue;
      const double middle = (layout_.heights[first] + layout_.heights[last]) / 2 - 2;
      text(left, middle, "",
           stage.scale == scales ? "output block" : fmt::format("scale {}", stage.scale + 1));
      text(left, middle + 14, "small", count(stage.stride, "token") + " a state");
      std::string words = fmt::format("segment {}, memory {}", stage.segment, stage.memory);
      if (stage.compressed_memory > 0) words += fmt::format(" + {}", stage.compressed_memory);
      text(left, middle + 27, "small", words);
      first = last + 1;
    }
  }

  // Draws the tokens, and the context length that the drawing shows.
  void draw_axis() {
    const double y = layout_.heights.front() + kState + 16;
    const std::int64_t oldest = layout_.position - layout_.reach;
    const auto middle = [&](std::int64_t token) { return layout_.x(token) + layout_.token / 2; };
    line(R"(<path class="line" d="M{:.1f} {:.1f}H{:.1f}"/>)", layout_.x(layout_.first), y,
         layout_.x(layout_.segment));
    std::int64_t distance = 1;
    while (static_cast<double>(distance) * layout_.token < 46) distance *= 2;
    for (std::int64_t back = 0; layout_.position - back >= layout_.first; back += distance) {
      line(R"(<path class="line" d="M{:.1f} {:.1f}v4"/>)", middle(layout_.position - back), y);
      text(middle(layout_.position - back), y + 16, "small", minus(back), "middle");
    }
    const double arrow = y + 32;
    // The axis is interrupted at the labels of the ticks.
    for (const std::int64_t token : {oldest, layout_.position}) {
      line(R"(<path class="dashed" d="M{0:.1f} {1:.1f}V{2:.1f}M{0:.1f} {3:.1f}V{4:.1f}"/>)",
           middle(token), layout_.heights.front() + kState + 2, y, y + 20, arrow + 6);
    }
    if (layout_.reach > 0) {
      line(R"(<path class="line" d="M{0:.1f} {1:.1f}H{2:.1f}"/>)", middle(oldest), arrow,
           middle(layout_.position));
      line(R"(<path d="M{0:.1f} {2:.1f}l6 -3.5v7zM{1:.1f} {2:.1f}l-6 -3.5v7z" fill="#222"/>)",
           middle(oldest), middle(layout_.position), arrow);
    }
    const bool wide = static_cast<double>(layout_.reach) * layout_.token > 260;
    line(
        R"(<text id="context" x="{:.1f}" y="{:.1f}" text-anchor="{}">context length {}: oldest token )"
        "{}</text>",
        wide ? (middle(oldest) + middle(layout_.position)) / 2 : layout_.x(layout_.first),
        arrow + 18, wide ? "middle" : "start", layout_.reach, minus(layout_.reach));
  }

  void draw_legend(double y) {
    double at = kLeft;
    const auto item = [&](const std::string& shape, const std::string& words) {
      line("<g transform=\"translate({:.1f} {:.1f})\">{}</g>", at, y - 11, shape);
      text(at + 34, y, "", words);
      at += 54 + 6.2 * static_cast<double>(words.size());
    };
    // The boxes have no classes, because they are not states.
    item(R"(<rect width="12" height="14" fill="#fff" stroke="#14497f"/>)"
         R"(<rect x="16" width="12" height="14" fill="#2f76b8" stroke="#14497f"/>)",
         "segment");
    if (layout_.row.geometry.recurrent) {
      item(R"(<rect width="12" height="14" rx="6" fill="#fff" stroke="#b4571a"/>)"
           R"(<rect x="16" width="12" height="14" rx="6" fill="#f2a869" stroke="#b4571a"/>)",
           "memory");
    }
    if (layout_.row.geometry.lengths.compressed_memory > 0) {
      item(R"(<path d="M0 7l4 -7h5l4 7l-4 7h-5z" fill="#fff" stroke="#6b2c86"/>)"
           R"(<path d="M16 7l4 -7h5l4 7l-4 7h-5z" fill="#c79bdb" stroke="#6b2c86"/>)",
           "compressed");
    }
    if (layout_.row.geometry.recurrent) {
      item(R"(<rect x="8" y="4" width="12" height="7" fill="#b9b9b9"/>)", "of earlier steps");
    }
    text(at, y, "", "filled: the framed output state depends on it");
  }

  Layout layout_;
  std::string out_;
};

}  // namespace

std::string draw_svg(const Row& row, std::int64_t position) {
  return Drawing(row, position).draw();
}

}  // namespace ql::ctx
