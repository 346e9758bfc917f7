#include "proxy/transfer.h"

#include <chrono>
#include <utility>

#include "base/fault_points.h"
#include "base/limits.h"
#include "base/log.h"
#include "image/source.h"
#include "os/namespaces.h"

namespace xmpi::proxy {
namespace {

using Clock = std::chrono::steady_clock;

// Neither end knows the other's view of the slot's epoch; the attempt says all.
image::StreamId StreamOf(const TransferId& id) {
  return {.slot = id.candidate.slot,
          .epoch = 0,
          .migration = id.candidate.migration,
          .attempt = id.candidate.attempt};
}

os::KeyContext KeyOf(const TransferId& id) { return {id.job, id.candidate, os::Role::kImage}; }

std::uint64_t RoomForPages(std::uint64_t limit_bytes) {
  return ArmedAt(FaultPoint::kTransferBefore) == FaultAction::kFull ? 64u << 10 : limit_bytes;
}

// Flips a bit of the first bytes of a file that pass.
image::WriteAll Corrupting(image::WriteAll write) {
  return [write, done = std::make_shared<bool>()](std::span<const std::byte> bytes) {
    if (bytes.size() <= image::kChunkHeaderBytes || std::exchange(*done, true)) return write(bytes);
    std::vector<std::byte> damaged(bytes.begin(), bytes.end());
    damaged.back() ^= std::byte{1};
    return write(damaged);
  };
}

}  // namespace

// ---- ImageSender

Result<std::unique_ptr<ImageSender>> ImageSender::Start(const os::Secret& secret, Options options,
                                                        Post post, Connected connected, Sent sent) {
  const os::KeyContext context = KeyOf(options.id);
  XMPI_ASSIGN_OR_RETURN(os::Secret key, os::DeriveKey(secret, context));
  XMPI_ASSIGN_OR_RETURN(os::TlsContext tls,
                        os::TlsContext::Client(os::Identity(context), std::move(key)));
  std::unique_ptr<ImageSender> sender(new ImageSender(
      std::move(tls), std::move(options), std::move(post), std::move(connected), std::move(sent)));
  sender->thread_ = std::jthread([raw = sender.get()] { raw->Run(); });
  return sender;
}

ImageSender::ImageSender(os::TlsContext tls, Options options, Post post, Connected connected,
                         Sent sent)
    : tls_(std::move(tls)),
      options_(std::move(options)),
      post_(std::move(post)),
      connected_(std::move(connected)),
      sent_(std::move(sent)),
      pipe_(tls_, {.stream = StreamOf(options_.id),
                   .addresses = options_.addresses,
                   .port = options_.port,
                   .timeouts = options_.timeouts,
                   .lanes = options_.lanes}) {}

ImageSender::~ImageSender() {
  {
    const std::lock_guard lock(mutex_);  // so that Await either sees it or is woken
    stop_.Stop();
  }
  pipe_.Stop();
  changed_.notify_all();
}

void ImageSender::Add(image::RankImage image) {
  const std::lock_guard lock(mutex_);
  images_.push_back(std::move(image));
  changed_.notify_all();
}

void ImageSender::Finish() {
  const std::lock_guard lock(mutex_);
  finished_ = true;
  changed_.notify_all();
}

void ImageSender::Run() {
  Result<> result = RunConnection();
  for (int redials = 0;
       !result && IsWorthAnother(result.error()) && !connected_ && redials < kRedials; ++redials) {
    log::Warn("transfer.redial", {{"why", result.error().message}});
    result = RunConnection();
  }
  if (stop_.stopped()) return;
  if (auto connected = std::exchange(connected_, nullptr)) {
    return post_([connected = std::move(connected), error = result.error()] {
      connected(std::unexpected(error));
    });
  }
  Result<std::uint64_t> bytes = bytes_;
  if (!result) bytes = std::unexpected(result.error());
  post_([sent = sent_, bytes] { sent(bytes); });
}

// From the dial to the verdict. `connected_` is still set when it never came to stand.
Result<> ImageSender::RunConnection() {
  XMPI_ASSIGN_OR_RETURN(os::TlsSocket socket, DialImagePort(tls_, options_.addresses, options_.port,
                                                            options_.timeouts, stop_));
  const StopSignal::Scope scope(&stop_, &socket);
  XMPI_RETURN_IF_ERROR(
      image::SendBegin(WriteTo(&socket), {.stream = StreamOf(options_.id),
                                          .lane = image::kControl,
                                          .lanes = static_cast<std::uint16_t>(options_.lanes)}));
  XMPI_ASSIGN_OR_RETURN(const image::Holdings held, image::ReceiveHoldings(ReadFrom(&socket)));
  if (connected_) {
    XMPI_RETURN_IF_ERROR(Ask(&socket));
    XMPI_ASSIGN_OR_RETURN(wire::Plan plan, SendAhead(&socket));
    post_([connected = std::exchange(connected_, nullptr), plan = std::move(plan)] {
      connected(plan);
    });
  }
  return SendAll(&socket, held);
}

Result<> ImageSender::Ask(os::TlsSocket* socket) {
  if (options_.facts) {
    XMPI_RETURN_IF_ERROR(
        image::SendMessage(WriteTo(socket), image::ChunkKind::kFacts, options_.facts()));
    XMPI_ASSIGN_OR_RETURN(const std::string findings,
                          image::ReceiveMessage(ReadFrom(socket), image::ChunkKind::kFindings));
    XMPI_RETURN_IF_ERROR(options_.judge(findings));
  }
  if (!options_.held) return {};
  const std::vector<image::HeldFile> held = options_.held();
  XMPI_ASSIGN_OR_RETURN(const std::vector<image::Seen> sights,
                        image::AskSights(ReadFrom(socket), WriteTo(socket), held));
  return options_.judge_sights(held, sights);
}

PagePipe::Manner ImageSender::MannerOf(os::TlsSocket* socket) {
  return {.pulse = [this, socket]() -> Result<> {
            if (options_.progress)
              post_([progress = options_.progress, read = meter_.Read()] { progress(read); });
            return image::SendWait(WriteTo(socket));
          },
          .looked = [this](RankId rank, std::uint64_t bytes) { meter_.Add(rank, bytes); }};
}

// The memory of the running ranks, round by round, while that gains anything.
Result<wire::Plan> ImageSender::SendAhead(os::TlsSocket* socket) {
  if (!options_.scan) return wire::Plan();
  Precopy precopy(options_.precopy, options_.lanes);
  Pace pace(limits::kPrecopyBytesPerSecond);
  PagePipe::Manner manner = MannerOf(socket);
  manner.pace = &pace;
  manner.nice = limits::kPrecopyNice;
  const Clock::time_point begin = Clock::now();
  for (;;) {
    const auto elapsed =
        std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin);
    if (const auto why = precopy.WhyEnough(elapsed)) return precopy.Plan(*why);
    XMPI_ASSIGN_OR_RETURN(const std::vector<PageJob> jobs, options_.scan());
    meter_.Begin(wire::Progress::PRECOPY);
    Round round;
    for (const PageJob& job : jobs) {
      meter_.Expect(job.rank, BytesOf(job));
      round.memory_bytes += BytesOf(job);
    }
    const Clock::time_point round_begin = Clock::now();
    XMPI_ASSIGN_OR_RETURN(const image::PassStats stats, pipe_.Pass(jobs, manner));
    round.changed_bytes = stats.raw_bytes;
    round.wire_bytes = stats.wire_bytes;
    round.took = Clock::now() - round_begin;
    round.looking = stats.reading + stats.hashing;
    round.sending = stats.compressing + stats.writing;
    precopy.Add(round);
  }
}

Result<> ImageSender::SendMemory(os::TlsSocket* socket, image::RankImage* image) {
  const image::Manifest& manifest = image->manifest;
  std::vector<PageJob> jobs;
  for (const image::TaskMemory& task : manifest.memory) {
    jobs.push_back({manifest.rank, task.pid, image->pages, task.runs});
    meter_.Expect(manifest.rank, BytesOf(jobs.back()));
  }
  if (jobs.empty()) return {};
  XMPI_ASSIGN_OR_RETURN(const image::PassStats stats, pipe_.Pass(jobs, MannerOf(socket)));
  bytes_ += stats.wire_bytes;
  for (image::TaskMemory& task : image->manifest.memory) {
    const auto digest = pipe_.Digest(manifest.rank, task.pid, task.runs);
    if (!digest)
      return Fail(
          ErrorCode::kRefused,
          std::format("rank {}: some pages of process {} cannot be read", manifest.rank, task.pid));
    task.digest = *digest;
  }
  return {};
}

Result<> ImageSender::SendAll(os::TlsSocket* socket, const image::Holdings& held) {
  image::WriteAll write = WriteTo(socket);
  const bool corrupt = ArmedAt(FaultPoint::kTransferBefore) == FaultAction::kCorrupt;
  if (corrupt && !std::exchange(corrupted_, true)) write = Corrupting(std::move(write));
  meter_.Begin(wire::Progress::TRANSFER);
  for (std::size_t index = 0;; ++index) {
    XMPI_ASSIGN_OR_RETURN(image::RankImage* const image, Await(index, write));
    if (image == nullptr) break;
    const auto found = held.find(image->manifest.rank);
    const image::RankHoldings has = found == held.end() ? image::RankHoldings{} : found->second;
    if (!has.whole) XMPI_RETURN_IF_ERROR(SendMemory(socket, image));
    XMPI_RETURN_IF_ERROR(image::SendImage(write, image, has, &bytes_));
  }
  XMPI_RETURN_IF_ERROR(image::SendEnd(write, bytes_));
  XMPI_RETURN_IF_ERROR(image::ReceiveVerdict(ReadFrom(socket)));
  (void)socket->Finish();
  return {};
}

Result<image::RankImage*> ImageSender::Await(std::size_t index, const image::WriteAll& write) {
  std::unique_lock lock(mutex_);
  const auto is_there = [&] { return index < images_.size() || finished_ || stop_.stopped(); };
  while (!changed_.wait_for(lock, limits::kImagePulse, is_there)) {
    lock.unlock();
    pipe_.Pulse();
    XMPI_RETURN_IF_ERROR(image::SendWait(write));
    lock.lock();
  }
  if (stop_.stopped()) return Fail(ErrorCode::kRefused, "the move was called off");
  return index < images_.size() ? &images_[index] : nullptr;
}

// ---- ImageReceiver

Result<std::unique_ptr<ImageReceiver>> ImageReceiver::Start(const os::Secret& secret,
                                                            Options options, Post post, Done done) {
  const os::KeyContext context = KeyOf(options.id);
  XMPI_ASSIGN_OR_RETURN(os::Secret key, os::DeriveKey(secret, context));
  auto shared = std::make_shared<os::Secret>(std::move(key));
  const auto lookup = [shared, welcome = os::Identity(context)](
                          std::string_view identity) -> std::optional<os::Secret> {
    if (identity != welcome) return std::nullopt;
    return shared->Copy();
  };
  XMPI_ASSIGN_OR_RETURN(os::TlsContext tls, os::TlsContext::Server(lookup));
  XMPI_ASSIGN_OR_RETURN(os::Listener listener, os::Listen(options.address, options.ports));
  std::unique_ptr<ImageReceiver> receiver(new ImageReceiver(
      std::move(tls), std::move(listener), std::move(options), std::move(post), std::move(done)));
  receiver->thread_ = std::jthread([raw = receiver.get()] { raw->Run(); });
  return receiver;
}

ImageReceiver::ImageReceiver(os::TlsContext tls, os::Listener listener, Options options, Post post,
                             Done done)
    : tls_(std::move(tls)),
      listener_(std::move(listener)),
      options_(std::move(options)),
      post_(std::move(post)),
      done_(std::move(done)),
      storage_([](RankId) { return os::MakeMemoryDirectory(0); }),
      store_(
          std::make_shared<image::PageStore>(options_.ranks, RoomForPages(options_.limit_bytes))),
      assembler_(&storage_, options_.ranks, options_.limit_bytes, store_.get()) {}

ImageReceiver::~ImageReceiver() {
  stopped_ = true;
  no_more_.Stop();
}

void ImageReceiver::Run() {
  AcceptUntilSettled();
  for (Connection& connection : connections_) connection.stop.Stop();
  connections_.clear();  // joins
  if (stopped_) return;
  Result<std::uint64_t> bytes = assembler_.sent_bytes();
  if (!*settled_) bytes = std::unexpected(settled_->error());
  post_([done = done_, bytes] { done(bytes); });
}

// When the control connection breaks, the source is given time to come back; only for the first one
// is there no hurry. Lanes come and go with it.
void ImageReceiver::AcceptUntilSettled() {
  os::TlsAcceptor acceptor = ImageAcceptor(tls_, listener_.socket, options_.timeouts);
  for (;;) {
    Result<os::TlsSocket> accepted =
        acceptor.Accept(no_more_.fd(), Clock::now() + limits::kImagePulse, LogStranger);
    std::unique_lock lock(mutex_);
    if (settled_ || stopped_) return;
    connections_.remove_if([](const Connection& each) { return each.ended.load(); });
    if (accepted) {
      Connection& connection = connections_.emplace_back(std::move(*accepted));
      connection.thread = std::jthread([this, &connection] { Serve(connection); });
    } else if (accepted.error().code != ErrorCode::kTimeout) {
      return SettleLocked(std::unexpected(accepted.error()));
    }
    if (!control_lost_at_ || Clock::now() < *control_lost_at_ + options_.timeouts.image_progress)
      continue;
    return SettleLocked(
        Fail(ErrorCode::kRefused, "the image connection broke and was not made again"));
  }
}

void ImageReceiver::Serve(Connection& connection) {
  const StopSignal::Scope scope(&connection.stop, &connection.socket);
  const image::ReadAll read = ReadFrom(&connection.socket);
  const image::WriteAll write = WriteTo(&connection.socket);
  const auto serve = [&]() -> Result<> {
    XMPI_ASSIGN_OR_RETURN(const image::Begin begin,
                          image::ReceiveBegin(read, write, StreamOf(options_.id)));
    if (begin.lane == image::kControl) return ServeControl(connection);
    return image::ReceivePages(read, write, begin, store_.get());
  };
  if (const Result<> served = serve(); !served) {
    log::Info("transfer.broken", {{"why", served.error().message}});
    if (!IsWorthAnother(served.error())) Settle(served);
  }
  connection.ended = true;
}

// One at a time: a source that comes again is the one to hear, whatever its former connection is
// at.
Result<> ImageReceiver::ServeControl(Connection& connection) {
  {
    const std::lock_guard lock(mutex_);
    if (control_ != nullptr) control_->stop.Stop();
    control_ = &connection;
    control_lost_at_.reset();
  }
  const std::lock_guard feeding(control_mutex_);
  const Result<> received = image::ReceiveImages(
      ReadFrom(&connection.socket), WriteTo(&connection.socket), &assembler_, options_.answers);
  // A source that is lost after its last byte has still sent everything.
  if (assembler_.complete()) {
    for (const RankId rank : options_.ranks)
      store_->Prune(rank, assembler_.ManifestOf(rank).memory);
    Settle({});
    return {};
  }
  const std::lock_guard lock(mutex_);
  if (control_ != &connection) return {};
  control_ = nullptr;
  control_lost_at_ = Clock::now();
  if (expect_nobody_) SettleLocked(SourceLost());
  return received;
}

void ImageReceiver::ExpectNobody() {
  const std::lock_guard lock(mutex_);
  expect_nobody_ = true;
  if (control_ == nullptr) SettleLocked(SourceLost());
}

std::unexpected<Error> ImageReceiver::SourceLost() {
  return Fail(ErrorCode::kRefused, "the source is lost, and not all images are here");
}

void ImageReceiver::Settle(Result<> result) {
  const std::lock_guard lock(mutex_);
  SettleLocked(std::move(result));
}

void ImageReceiver::SettleLocked(Result<> result) {
  if (!settled_) settled_ = std::move(result);
  no_more_.Stop();
}

Result<HeldImage> ImageReceiver::Image(RankId rank) const {
  XMPI_ASSIGN_OR_RETURN(Fd directory, storage_.Open(rank));
  std::shared_ptr<image::StoredPages> pages = store_->Rank(rank);
  return HeldImage{{std::move(directory), assembler_.ManifestOf(rank), {}, pages}, pages};
}

}  // namespace xmpi::proxy
