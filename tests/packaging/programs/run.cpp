// run MODEL.pkg: runs the entry point `copy` of the tests' sample bundle on 1, 2, 3 and prints what comes out.
#include <cstdio>
#include <hardtack/hardtack.hpp>

int main(int argc, char** argv) {
  auto model = hardtack::Model::load(argc > 1 ? argv[1] : "");
  if (!model.ok()) return std::fprintf(stderr, "%s\n", model.status().message()), 1;
  auto session = model->new_session();
  if (!session.ok()) return std::fprintf(stderr, "%s\n", session.status().message()), 1;
  const float x[] = {1, 2, 3};
  auto out = session->run({hardtack::Tensor::of(x, {3})}, "copy");
  if (!out.ok()) return std::fprintf(stderr, "%s\n", out.status().message()), 1;
  const float* y = out->at(0).data<const float>();
  std::printf("%s: %g %g %g\n", ht_version(), static_cast<double>(y[0]), static_cast<double>(y[1]),
              static_cast<double>(y[2]));
  return 0;
}
