#include "os/tls_socket.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <format>
#include <vector>

namespace xmpi::os {
namespace {

using Clock = std::chrono::steady_clock;

// TLS's records are of 16 KiB; a system call for each, at either end, costs more than sealing it.
constexpr std::size_t kGatheredBytes = 256u << 10;
constexpr std::size_t kReadAheadBytes = 128u << 10;

int MillisecondsUntil(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, INT_MAX));
}

}  // namespace

// Between OpenSSL and the socket: gathers records on their way out. OpenSSL's own socket BIO does
// not, and uses write(2), which raises SIGPIPE on a cut connection.
struct TlsSocket::Wire {
  int fd = -1;
  std::vector<char> unsent{};
  std::size_t begin = 0;  // of what is unsent

  std::size_t Left() const { return unsent.size() - begin; }
  // What the socket takes of it; false when that is not all, and errno says why.
  bool Push() {
    while (begin < unsent.size()) {
      const ssize_t sent = ::send(fd, unsent.data() + begin, unsent.size() - begin, MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0) return false;
      begin += static_cast<std::size_t>(sent);
    }
    unsent.clear();
    begin = 0;
    return true;
  }

  static Wire& Of(BIO* bio) { return *static_cast<Wire*>(BIO_get_data(bio)); }

  static int OnWrite(BIO* bio, const char* data, int size) {
    Wire& wire = Of(bio);
    BIO_clear_retry_flags(bio);
    if (wire.Left() >= kGatheredBytes && !wire.Push() && wire.Left() >= kGatheredBytes) {
      if (errno == EAGAIN) BIO_set_retry_write(bio);
      return -1;
    }
    wire.unsent.insert(wire.unsent.end(), data, data + size);
    return size;
  }

  static int OnRead(BIO* bio, char* data, int size) {
    const auto got = ::recv(Of(bio).fd, data, static_cast<std::size_t>(size), 0);
    BIO_clear_retry_flags(bio);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
    if (got == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
    return static_cast<int>(got);
  }

  static long OnControl(BIO* bio, int command, long, void*) {
    if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0;
    if (command != BIO_CTRL_FLUSH) return 0;
    BIO_clear_retry_flags(bio);
    if (Of(bio).Push()) return 1;
    if (errno == EAGAIN) BIO_set_retry_write(bio);
    return -1;
  }

  static BIO* NewBio(Wire* wire) {
    static BIO_METHOD* const method = [] {
      BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "xmpi socket");
      BIO_meth_set_write(made, OnWrite);
      BIO_meth_set_read(made, OnRead);
      BIO_meth_set_ctrl(made, OnControl);
      return made;
    }();
    BIO* bio = BIO_new(method);
    if (bio != nullptr) {
      BIO_set_data(bio, wire);
      BIO_set_init(bio, 1);
    }
    return bio;
  }
};

TlsSocket::TlsSocket() = default;
TlsSocket::TlsSocket(TlsSocket&&) noexcept = default;
TlsSocket& TlsSocket::operator=(TlsSocket&&) noexcept = default;
TlsSocket::~TlsSocket() = default;

Result<TlsSocket> TlsSocket::Make(const TlsContext& context, Fd socket, Deadlines deadlines) {
  const int flags = ::fcntl(socket.get(), F_GETFL);
  if (flags < 0 || ::fcntl(socket.get(), F_SETFL, flags | O_NONBLOCK) < 0) {
    return std::unexpected(ErrnoError("TLS socket"));
  }
  TlsSocket result;
  result.ssl_.reset(SSL_new(context.native()));
  result.wire_ = std::make_unique<Wire>(socket.get());
  BIO* bio = Wire::NewBio(result.wire_.get());
  if (result.ssl_ == nullptr || bio == nullptr) {
    BIO_free(bio);
    return std::unexpected(TlsFailure(nullptr, "TLS socket"));
  }
  SSL_set_bio(result.ssl_.get(), bio, bio);
  SSL_set_default_read_buffer_len(result.ssl_.get(), kReadAheadBytes);
  SSL_set_read_ahead(result.ssl_.get(), 1);
  result.socket_ = std::move(socket);
  result.deadlines_ = deadlines;
  return result;
}

Result<TlsSocket> TlsSocket::Connect(const TlsContext& context, Fd socket, Deadlines deadlines) {
  XMPI_ASSIGN_OR_RETURN(TlsSocket result, Make(context, std::move(socket), deadlines));
  XMPI_RETURN_IF_ERROR(result.Handshake(false));
  return result;
}

Result<TlsSocket> TlsSocket::Accept(const TlsContext& context, Fd socket, Deadlines deadlines) {
  XMPI_ASSIGN_OR_RETURN(TlsSocket result, Make(context, std::move(socket), deadlines));
  XMPI_RETURN_IF_ERROR(result.Handshake(true));
  return result;
}

Result<bool> TlsSocket::StepHandshake(bool accept) {
  ERR_clear_error();
  errno = 0;
  const int result = accept ? SSL_accept(ssl_.get()) : SSL_connect(ssl_.get());
  if (result == 1) {
    XMPI_ASSIGN_OR_RETURN(identity_, CheckPeer(ssl_.get()));
    return true;
  }
  const int error = SSL_get_error(ssl_.get(), result);
  if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return false;
  return std::unexpected(TlsFailure(ssl_.get(), "TLS handshake"));
}

Result<> TlsSocket::Handshake(bool accept) {
  const auto deadline = Clock::now() + deadlines_.handshake;
  for (;;) {
    XMPI_ASSIGN_OR_RETURN(const bool done, StepHandshake(accept));
    if (done) return {};
    const int wanted = SSL_want_write(ssl_.get()) ? SSL_ERROR_WANT_WRITE : SSL_ERROR_WANT_READ;
    XMPI_RETURN_IF_ERROR(Wait(wanted, deadline, "TLS handshake"));
  }
}

Result<> TlsSocket::Wait(int ssl_error, Clock::time_point deadline, std::string_view what) {
  pollfd item{socket_.get(),
              static_cast<short>(ssl_error == SSL_ERROR_WANT_WRITE ? POLLOUT : POLLIN), 0};
  const int ready = ::poll(&item, 1, MillisecondsUntil(deadline));
  if (ready < 0 && errno != EINTR) return std::unexpected(ErrnoError(what));
  if (ready == 0 && Clock::now() >= deadline) {
    return Fail(ErrorCode::kTimeout, std::format("{}: no answer from the peer in time", what));
  }
  return {};
}

template <class Operation>
Result<std::size_t> TlsSocket::Run(std::string_view what, Operation operation) {
  const auto deadline = Clock::now() + deadlines_.progress;
  for (;;) {
    ERR_clear_error();
    errno = 0;
    std::size_t moved = 0;
    const int result = operation(&moved);
    if (result > 0) return moved;
    const int error = SSL_get_error(ssl_.get(), result);
    if (error == SSL_ERROR_ZERO_RETURN) return 0;
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) {
      return std::unexpected(TlsFailure(ssl_.get(), what));
    }
    XMPI_RETURN_IF_ERROR(Wait(error, deadline, what));
  }
}

Result<> TlsSocket::Write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    XMPI_ASSIGN_OR_RETURN(const std::size_t written, Run("TLS write", [&](std::size_t* moved) {
                            return SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), moved);
                          }));
    if (written == 0) return Fail(ErrorCode::kUnreachable, "TLS write: the peer has closed");
    bytes = bytes.subspan(written);
  }
  return Flush("TLS write");
}

Result<> TlsSocket::Flush(std::string_view what) {
  auto deadline = Clock::now() + deadlines_.progress;
  for (std::size_t left = wire_->Left(); !wire_->Push(); left = wire_->Left()) {
    if (errno != EAGAIN) return Fail(ErrorCode::kUnreachable, ErrnoError(what).message);
    if (wire_->Left() < left) deadline = Clock::now() + deadlines_.progress;
    XMPI_RETURN_IF_ERROR(Wait(SSL_ERROR_WANT_WRITE, deadline, what));
  }
  return {};
}

Result<std::size_t> TlsSocket::Read(std::span<std::byte> bytes) {
  return Run("TLS read", [&](std::size_t* moved) {
    return SSL_read_ex(ssl_.get(), bytes.data(), bytes.size(), moved);
  });
}

Result<> TlsSocket::ReadExactly(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    XMPI_ASSIGN_OR_RETURN(const std::size_t got, Read(bytes));
    if (got == 0) return Fail(ErrorCode::kUnreachable, "TLS read: the peer ended too early");
    bytes = bytes.subspan(got);
  }
  return {};
}

Result<> TlsSocket::Finish() {
  const auto done = Run("TLS close", [&](std::size_t*) {
    const int result = SSL_shutdown(ssl_.get());
    return result == 0 ? 1 : result;  // 0: ours is sent, the peer's has not come; enough
  });
  if (!done) return std::unexpected(done.error());
  return Flush("TLS close");
}

void TlsSocket::Abort() { ::shutdown(socket_.get(), SHUT_RDWR); }

}  // namespace xmpi::os
