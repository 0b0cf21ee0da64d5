#include "train/state.h"

#include "base/error.h"

namespace ql::train {
namespace {

Json identity_to_json(const DataIdentity& identity) {
  return {{"name", identity.name}, {"hash", identity.hash}, {"tokens", identity.tokens}};
}

DataIdentity identity_from_json(const JsonObject& json) {
  json.refuse_unknown({"name", "hash", "tokens"});
  return {json.text("name"), json.text("hash"), json.integer("tokens", 0)};
}

}  // namespace

Json state_to_json(const TrainingState& state) {
  Json json = {{"step", state.step},
               {"updates", state.updates},
               {"cursor", state.cursor},
               {"elapsed", state.elapsed},
               {"epoch", state.epoch},
               {"position", state.position},
               {"validation_step", state.validation_step}};
  if (state.best) {
    json["best"] = {{"step", state.best->step}, {"loss", state.best->loss}};
  }
  json["since_log"] = {{"steps", state.loss_steps},
                       {"loss_sum", state.loss_sum},
                       {"gradient_norm_sum", state.gradient_norm_sum}};
  json["processes"] = state.processes;
  json["running_loss"] = {{"mean", state.running_loss.mean}, {"steps", state.running_loss.steps}};
  json["divergences"] = {{"count", state.divergences.count}, {"recent", state.divergences.recent}};
  json["data"] = identity_to_json(state.data);
  json["validation"] = identity_to_json(state.validation);
  return json;
}

TrainingState state_from_json(const JsonObject& json) {
  json.refuse_unknown({"step", "updates", "cursor", "elapsed", "epoch", "position",
                       "validation_step", "best", "since_log", "processes", "running_loss",
                       "divergences", "data", "validation"});
  TrainingState state;
  state.step = json.integer("step", 0);
  // Files of earlier versions have neither.
  state.updates = json.has("updates") ? json.integer("updates", 0, state.step) : state.step;
  state.cursor = json.has("cursor") ? json.integer("cursor", 0) : state.step;
  state.elapsed = json.real("elapsed");
  state.epoch = json.integer("epoch", 0);
  state.position = json.integer("position", 0);
  state.validation_step = json.integer("validation_step", 0, state.step);
  if (json.has("best")) {
    const JsonObject best = json.object("best");
    best.refuse_unknown({"step", "loss"});
    state.best = Best{best.integer("step", 0, state.step), best.real("loss")};
  }
  const JsonObject since = json.object("since_log");
  since.refuse_unknown({"steps", "loss_sum", "gradient_norm_sum"});
  state.loss_steps = since.integer("steps", 0, state.step);
  state.loss_sum = since.real("loss_sum");
  state.gradient_norm_sum = since.real("gradient_norm_sum");
  if (json.has("processes")) {
    state.processes = json.integer("processes", 1);
  }
  if (json.has("running_loss")) {
    const JsonObject loss = json.object("running_loss");
    loss.refuse_unknown({"mean", "steps"});
    state.running_loss = {loss.real("mean"), loss.integer("steps", 0)};
  }
  if (json.has("divergences")) {
    const JsonObject divergences = json.object("divergences");
    divergences.refuse_unknown({"count", "recent"});
    state.divergences = {divergences.integer("count", 0), divergences.integers("recent")};
  }
  state.data = identity_from_json(json.object("data"));
  state.validation = identity_from_json(json.object("validation"));
  return state;
}

}  // namespace ql::train
