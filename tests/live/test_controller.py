"""The controller's loops: what ends them."""

from dataclasses import replace


class Watcher:
    """Watches nothing."""

    def step(self):
        pass


def test_all_loops_end_at_once_however_seldom_they_step(service):
    live = service("local-fcfs")
    controller = live.controller
    seldom = controller.setup.config.model_copy(update={"poll_s": 1e6})
    controller.setup = replace(controller.setup, config=seldom)
    controller.watchers = {0: Watcher()}
    controller.run()
    controller.stop()
    for thread in controller._threads:
        thread.join(20)
        assert not thread.is_alive(), thread.name
