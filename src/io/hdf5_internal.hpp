#pragma once

#include <functional>
#include <string>

#include "fedhpc/io/hdf5.hpp"

namespace fedhpc::h5 {

/// Returns HDF5's own reason for the last failure: the innermost entry of its error stack.
std::string last_reason();

/// Opens a file to read it, also one that a run still writes, without a look at its parts.
Handle open_any(const std::string& path);

/// Owns a valid identifier; throws Error with `what` and the reason for an invalid one.
Handle own(hid_t id, Handle::Close close, const std::string& what);

/// Properties of links that make the groups on their way.
Handle link_properties();

/// Throws Error with `what` and the reason unless `status` is success.
void check(herr_t status, const std::string& what);

/// Calls visit(attribute, name) for each attribute of the object at `path`. What it throws ends it.
void each_attribute(const Handle& object, const std::string& path,
                    const std::function<void(const Handle&, const char*)>& visit);

}  // namespace fedhpc::h5
