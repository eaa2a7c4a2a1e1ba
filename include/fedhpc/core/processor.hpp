#pragma once

#include <istream>
#include <string>

namespace fedhpc {

/// The type of this machine's processor, such as "AMD EPYC 7763 64-Core Processor, family 25, model 1". Libraries add
/// the terms of a product in another order on another type: runs on two of them differ by rounding.
std::string processor_type();

/// The same from what Linux says in /proc/cpuinfo; "unknown" where that names no type.
std::string processor_type(std::istream& cpuinfo);

/// Some names with " + " between them, and those of `more` that are not among them.
std::string with_added(const std::string& names, const std::string& more);

}  // namespace fedhpc
