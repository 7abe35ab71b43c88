#include "launch.hpp"

namespace vramplan {

OrderedJson write_launch_texts(const Launch& launch) {
  OrderedJson out = OrderedJson::array();
  for (const LaunchText& t : launch.texts) {
    out.push_back({{"id", name_of(t.id)}, {"filename", t.filename}, {"format", name_of(t.format)}, {"text", t.text}});
  }
  return out;
}

OrderedJson write_launch_omissions(const Launch& launch) {
  OrderedJson out = OrderedJson::array();
  for (const LaunchOmission& o : launch.left_out) {
    out.push_back({{"id", name_of(o.id)}, {"reason", name_of(o.reason)}, {"pointer", o.pointer}});
  }
  return out;
}

}  // namespace vramplan
