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

// A connection that breaks this often in one transfer is not worth another try.
constexpr int kRedials = 3;

// Neither end knows the other's view of the slot's epoch; the attempt says all.
image::StreamId StreamOf(const TransferId& id) {
  return {.slot = id.candidate.slot,
          .epoch = 0,
          .migration = id.candidate.migration,
          .attempt = id.candidate.attempt};
}

os::KeyContext KeyOf(const TransferId& id) { return {id.job, id.candidate, os::Role::kImage}; }

// Another connection would end in the same way.
bool IsFinal(const Error& error) {
  return error.code != ErrorCode::kUnreachable && error.code != ErrorCode::kTimeout;
}

// 0: what the node's memory allows.
std::uint64_t RoomForAnImage() {
  return ArmedAt(FaultPoint::kTransferBefore) == FaultAction::kFull ? 64u << 10 : 0;
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
      sent_(std::move(sent)) {}

ImageSender::~ImageSender() {
  {
    const std::lock_guard lock(mutex_);  // so that Await either sees it or is woken
    stop_.Stop();
  }
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
  for (int redials = 0; !result && !IsFinal(result.error()) && !connected_ && redials < kRedials;
       ++redials) {
    log::Warn("transfer.redial", {{"why", result.error().message}});
    result = RunConnection();
  }
  if (stop_.stopped()) return;
  if (auto connected = std::exchange(connected_, nullptr))
    return post_([connected = std::move(connected), result] { connected(result); });
  Result<std::uint64_t> bytes = bytes_;
  if (!result) bytes = std::unexpected(result.error());
  post_([sent = sent_, bytes] { sent(bytes); });
}

// From the dial to the verdict. `connected_` is still set when it never came to stand.
Result<> ImageSender::RunConnection() {
  XMPI_ASSIGN_OR_RETURN(os::TlsSocket socket, DialImagePort(tls_, options_.addresses, options_.port,
                                                            options_.timeouts, stop_));
  const StopSignal::Scope scope(&stop_, &socket);
  XMPI_RETURN_IF_ERROR(image::SendBegin(WriteTo(&socket), {.stream = StreamOf(options_.id)}));
  XMPI_ASSIGN_OR_RETURN(const image::Holdings held, image::ReceiveHoldings(ReadFrom(&socket)));
  if (connected_) {
    XMPI_RETURN_IF_ERROR(Ask(&socket));
    post_([connected = std::exchange(connected_, nullptr)] { connected({}); });
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

Result<> ImageSender::SendAll(os::TlsSocket* socket, const image::Holdings& held) {
  image::WriteAll write = WriteTo(socket);
  const bool corrupt = ArmedAt(FaultPoint::kTransferBefore) == FaultAction::kCorrupt;
  if (corrupt && !std::exchange(corrupted_, true)) write = Corrupting(std::move(write));
  for (std::size_t index = 0;; ++index) {
    XMPI_ASSIGN_OR_RETURN(image::RankImage* const image, Await(index, write));
    if (image == nullptr) break;
    const auto found = held.find(image->manifest.rank);
    XMPI_RETURN_IF_ERROR(image::SendImage(
        write, image, found == held.end() ? image::RankHoldings{} : found->second, &bytes_));
  }
  XMPI_RETURN_IF_ERROR(image::SendEnd(write));
  XMPI_RETURN_IF_ERROR(image::ReceiveVerdict(ReadFrom(socket)));
  (void)socket->Finish();
  return {};
}

Result<image::RankImage*> ImageSender::Await(std::size_t index, const image::WriteAll& write) {
  std::unique_lock lock(mutex_);
  const auto is_there = [&] { return index < images_.size() || finished_ || stop_.stopped(); };
  while (!changed_.wait_for(lock, limits::kImagePulse, is_there)) {
    lock.unlock();
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
      storage_([](RankId) { return os::MakeMemoryDirectory(RoomForAnImage()); }),
      assembler_(&storage_, options_.ranks, options_.limit_bytes) {}

ImageReceiver::~ImageReceiver() { stop_.Stop(); }

void ImageReceiver::Run() {
  Result<> result = RunConnection();
  while (!result && !assembler_.complete() && !IsFinal(result.error()) && !stop_.stopped()) {
    // Before the first byte it is a source that has found a reason not to send, and says so itself.
    log::Write(assembler_.bytes() > 0 ? log::Level::kWarn : log::Level::kInfo, "transfer.broken",
               {{"why", result.error().message}});
    result = RunConnection();
  }
  if (stop_.stopped()) return;
  // A source that is lost after its last byte has still sent everything.
  if (assembler_.complete()) result = {};
  Result<std::uint64_t> bytes = assembler_.bytes();
  if (!result) bytes = std::unexpected(result.error());
  post_([done = done_, bytes] { done(bytes); });
}

// From a peer to the last image. When a connection breaks, the source is given time to come back;
// only for the first one is there no hurry.
Result<> ImageReceiver::RunConnection() {
  const auto deadline =
      had_peer_ ? Clock::now() + options_.timeouts.image_progress : Clock::time_point::max();
  Result<os::TlsSocket> accepted =
      AcceptImagePeer(tls_, listener_.socket, options_.timeouts, stop_, deadline);
  if (!accepted && accepted.error().code == ErrorCode::kTimeout)
    return Fail(ErrorCode::kRefused, "the image connection broke and was not made again");
  if (!accepted) return std::unexpected(accepted.error());
  had_peer_ = true;
  os::TlsSocket socket = std::move(*accepted);
  const StopSignal::Scope scope(&stop_, &socket);
  XMPI_RETURN_IF_ERROR(
      image::ReceiveBegin(ReadFrom(&socket), WriteTo(&socket), StreamOf(options_.id)));
  return image::ReceiveImages(ReadFrom(&socket), WriteTo(&socket), &assembler_, options_.answers);
}

Result<image::RankImage> ImageReceiver::Image(RankId rank) const {
  XMPI_ASSIGN_OR_RETURN(Fd directory, storage_.Open(rank));
  return image::RankImage{std::move(directory), assembler_.ManifestOf(rank)};
}

}  // namespace xmpi::proxy
