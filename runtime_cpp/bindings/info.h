// What a model says of itself, as plain Python dicts and lists.
#pragma once

#include <hardtack/hardtack.h>
#include <pybind11/pybind11.h>

namespace hardtack::py_binding {

namespace py = pybind11;

py::dict model_info(const ht_model* model);
py::list entries_info(const ht_model* model);

}  // namespace hardtack::py_binding
