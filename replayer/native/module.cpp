// tapedelay.replayer._core: ordering, check and the native backends.
#include "bind.h"

NB_MODULE(_core, m) {
  m.doc() = "Ordering, check and the native backends on the columns of a tape.";
  tapedelay::bind_columns(m);
  tapedelay::bind_check(m);
  tapedelay::bind_virtual(m);
  tapedelay::bind_threads(m);
}
