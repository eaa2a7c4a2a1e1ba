#pragma once

#include <string>

namespace fedhpc {

/// What the exception in hand says, on one line; for anything but a std::exception the type that was
/// thrown. To be called where it is caught.
std::string what_was_thrown();

}  // namespace fedhpc
