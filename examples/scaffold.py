"""SCAFFOLD in Python: control variates in the clients' store correct the drift of local training.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: "SCAFFOLD: Stochastic Controlled Averaging for Federated
Learning", ICML 2020, Algorithm 1 with option II.

    python3 examples/scaffold.py
"""

import fedhpc


@fedhpc.algorithm("scaffold_py", "SCAFFOLD, control variates of clients and server (Karimireddy et al., ICML 2020)")
class Scaffold(fedhpc.Algorithm):
    can_leave_rounds = True

    def declare(self, options):
        options.add("server_lr", 1.0, above=0, help="eta_g: step from the old model to the mean of the clients'")
        options.averaging(weighting="uniform", payloads="changes")
        options.add_check(self.check)

    def check(self, options):
        # c_i+ is a mean gradient: it is read off the steps only where each is eta_l times a gradient.
        for key in ("train.optimizer", "train.momentum", "train.nesterov", "train.weight_decay", "train.clip_norm"):
            options.refuse_unless_default(key, "algorithm.name = scaffold_py, whose local steps are plain SGD")

    def initialise(self, setup):
        self.lr = setup.training.lr
        self.model = setup.initial_model()                     # [1, P]  x
        self.control = self.model.zeros()                      # [1, P]  c
        self.controls = setup.store.rows("control", self.control)      # c_i
        self.sgd = setup.optimizer(self.model)
        # Two payloads a round: each has links, and random draws of codecs, of its own.
        self.codec = setup.open_links(self.model)
        self.control_codec = setup.open_links(self.control, channel=1)

    def round(self, round):
        update, drift = round.mean(), round.mean()
        for block in round.blocks():
            start = block.download(self.model)                 # [C, P]  y_i <- x
            control = block.download(self.control, channel=1)  # c travels, too
            own = self.controls.read(block.clients)            # [C, P]  c_i
            correction = control - own                         # c - c_i
            trained, reach = self.local_steps(block, start, correction)
            # c_i+ <- c_i - c + (x - y_i) / (K eta_l); a client without a local step keeps its c_i
            new = own.clone()
            new.add(control, [-1 if eta > 0 else 0 for eta in reach])
            new.add(start - trained, [1 / eta if eta > 0 else 0 for eta in reach])
            block.keep_buffers(trained)
            weights = block.weights(self.weighting)
            update.add(weights, block.upload(trained - start, self.codec))
            drift.add(weights, block.upload(new - own, self.control_codec))
            block.keep(self.controls, new)
        step = update.reduce()
        step.scale(self.server_lr, "trainable")
        self.model += step                                     # x <- x + eta_g mean(y_i - x)
        self.control += round.share_of_clients() * drift.reduce()  # c <- c + |S|/N mean(c_i+ - c_i)

    def local_steps(self, block, start, correction):
        """(y_i after K local steps, [C, P]; K eta_l of each client)."""
        trained = start.clone()
        reach = [0.0] * len(block)
        self.sgd.reset(trained)

        def take(step):
            gradient = step.gradient(trained)
            gradient.add(correction)                           # g_i(y_i) - c_i + c
            step.step(trained, gradient, self.sgd)
            for first, count, rate in step.each_rate():
                for c in range(first, first + count):
                    reach[c] += rate * self.lr

        block.each_step(take)
        return trained, reach

    def evaluate(self, evaluation):
        evaluation.global_model(self.model)

    def visit_state(self, state):
        self.model = state.rows("model", self.model)
        self.control = state.rows("control", self.control)


if __name__ == "__main__":
    results = fedhpc.run({"algorithm.name": "scaffold_py", "run.rounds": 10, "run.output": "scaffold_py.h5"})
    print(results.rounds[["train_loss", "global_accuracy"]])
