#include "criu/fake_checkpointer.h"

#include <format>
#include <utility>

namespace xmpi::criu {

void FakeCheckpointer::RunPending() {
  std::deque<Pending> held;
  while (!pending_.empty()) {
    Pending next = std::move(pending_.front());
    pending_.pop_front();
    if (next.hold) {
      held.push_back(std::move(next));
    } else {
      next.finish(next.error);
    }
  }
  pending_ = std::move(held);
}

void FakeCheckpointer::Release(RankId rank) {
  for (Pending& pending : pending_) {
    if (pending.rank == rank) pending.hold = false;
  }
}

void FakeCheckpointer::Queue(RankId rank, const Plan& plan,
                             std::function<void(std::string)> finish) {
  pending_.push_back({rank, plan.hold, plan.error, std::move(finish)});
}

void FakeCheckpointer::Check(std::function<void(Result<Preflight>)> done) {
  calls.push_back("check");
  Queue(0, Plan{.error = check_error}, [done = std::move(done)](std::string error) {
    if (!error.empty()) return done(Fail(ErrorCode::kRefused, std::move(error)));
    done(Preflight{.version = "4.1.1", .why_eager = {}});
  });
}

void FakeCheckpointer::Dump(DumpRequest request, std::function<void(DumpDone)> done) {
  calls.push_back(std::format("dump {}", request.rank));
  const Plan plan = dumps[request.rank];
  Queue(request.rank, plan,
        [this, plan, request = std::move(request), done = std::move(done)](std::string error) {
          states_[request.pid] = plan.original;
          DumpDone result{.rank = request.rank, .image = {}, .original = plan.original, .log = {}};
          if (error.empty()) {
            result.image->manifest.rank = request.rank;
            result.image->manifest.pid = request.pid;
          } else {
            result.image = Fail(std::move(error));
          }
          done(std::move(result));
        });
}

void FakeCheckpointer::Restore(RestoreRequest request, std::function<void(RestoreDone)> done) {
  const image::Manifest manifest = request.image.manifest;
  calls.push_back(std::format("restore {}", manifest.rank));
  auto image = std::make_shared<image::RankImage>(std::move(request.image));
  Queue(manifest.rank, restores[manifest.rank],
        [this, manifest, image, done = std::move(done)](std::string error) {
          RestoreDone result{
              .rank = manifest.rank, .pid = manifest.pid, .image = std::move(*image), .log = {}};
          if (error.empty()) {
            states_[manifest.pid] = ProcessState::kRunning;
          } else {
            result.pid = Fail(std::move(error));
          }
          done(std::move(result));
        });
}

void FakeCheckpointer::FillMemory(std::function<void(Result<>)> done) {
  calls.push_back("fill");
  Queue(0, Plan{.error = fill_error}, [done = std::move(done)](std::string error) {
    if (!error.empty()) return done(Fail(std::move(error)));
    done({});
  });
}

void FakeCheckpointer::Cancel() {
  calls.push_back("cancel");
  for (Pending& pending : pending_) {
    pending.hold = false;
    if (pending.error.empty()) pending.error = "cancelled";
  }
}

ProcessState FakeCheckpointer::State(pid_t pid) {
  const auto state = states_.find(pid);
  return state == states_.end() ? ProcessState::kRunning : state->second;
}

Result<> FakeCheckpointer::Continue(pid_t pid) {
  calls.push_back(std::format("continue {}", pid));
  if (State(pid) == ProcessState::kGone) return Fail(std::format("process {} is gone", pid));
  states_[pid] = ProcessState::kRunning;
  return {};
}

Result<> FakeCheckpointer::Kill(pid_t pid) {
  calls.push_back(std::format("kill {}", pid));
  states_[pid] = ProcessState::kGone;
  return {};
}

}  // namespace xmpi::criu
