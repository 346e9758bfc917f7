#include "base/error.h"

#include <cerrno>
#include <cstring>
#include <format>

namespace xmpi {

Error ErrnoError(std::string_view what) {
  const int error = errno;
  return Error{ErrorCode::kFailed, std::format("{}: {}", what, std::strerror(error))};
}

}  // namespace xmpi
