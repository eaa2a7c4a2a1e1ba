"""pFedSOP with another model to start from: what its paper's gain over fine-tuning would need.

Sen, Mohan: "pFedSOP: Accelerating Training Of Personalized Federated Learning Using Second-Order Optimization",
Algorithms 1 to 3. Its second-order step is eta_1 / (2 sqrt(rho)) long at most, so that a client hardly hears of the
others. `algorithm.start` changes one line of Algorithm 1, the model that the step is taken from:

    own       x_i(t-1), the client's own: the paper, and the models of algorithm.name = pfedsop but for rounding;
              bytes of the initial model are not booked
    mixture   (1 - beta) x_i(t-1) + beta w, with the paper's weight beta and the server's model w
    server    w = x - eta_2 sum_t Delta_t, which every client can add up from what it receives

    python3 examples/pfedsop_start.py configs/papers/pfedsop/fmnist_dir_pfedsop.ini [START ...] [KEY=VALUE ...]

runs a configuration with each, where FEDHPC_DATA names the folder of the data sets.
"""

import math
import sys

import fedhpc


@fedhpc.algorithm("pfedsop_start", "pFedSOP with another start of its second-order step (Sen, Mohan)")
class PFedSOPStart(fedhpc.Algorithm):
    models = "personal"

    def declare(self, options):
        options.add("start", "own", choices=["own", "mixture", "server"], help="where the second-order step starts")
        options.add("personal_lr", 0.01, at_least=0, help="rate eta_1 of the second-order step")
        options.add("rho", 1.0, above=0, help="regularisation of the Fisher matrix")
        options.add("lambda", 1.0, at_least=0, help="steepness of the Gompertz function")
        options.averaging(weighting="uniform")

    def initialise(self, setup):
        model = setup.initial_model()
        self.lr = setup.training.lr                            # eta_2
        self.part = fedhpc.RowPart(model, "trainable")
        self.server = self.part.of(model)                      # [1, d]  w
        self.update = self.server.zeros()                      # [1, d]  Delta_t
        self.kept = setup.store.rows("model", model)         # x_i
        self.updates = setup.store.rows("update", self.update)  # Delta_i

    def round(self, round):
        mean = round.mean(self.part.layout)
        for block in round.blocks():
            received = block.download(self.update) if round.number > 1 else None  # Delta_{t-1}
            start = self.personalised(block, received)         # x_it
            trained = block.train(start)                       # x_it^T
            own = (1 / (self.lr * round.lr_factor)) * (self.part.of(start) - self.part.of(trained))  # (11)
            block.keep(self.updates, own)
            block.keep(self.kept, trained)
            mean.add(block.weights(self.weighting), block.upload(own, self.codec))
        self.update = mean.reduce(otherwise=self.update)       # Delta_t (13); it stays where nobody has samples
        if round.total_weight("uniform") > 0:
            self.server += -self.lr * round.lr_factor * self.update

    def personalised(self, block, received):
        """x_it of every client, [C, P] (Algorithm 1)."""
        start = self.kept.read(block.clients)
        if received is None:
            return start
        x, own = self.part.of(start), self.updates.read(block.clients)
        own_square, product = (row.values for row in own.inner_products(received))
        square = self.update.inner_products(self.update)[0].values[0]
        moves = [self.updates.written(client) for client in block.clients]
        steps = [self.step(*of) for of in zip(own_square, product, [square] * len(moves))]
        betas = [beta if moved else 1.0 for moved, (beta, _) in zip(moves, steps)]  # the first time from w alone
        if self.start == "mixture":
            x.scale([1 - beta for beta in betas])
            x.add(x.like(self.server.values.repeat(len(moves), 0)), betas, "trainable")
        elif self.start == "server":
            x.assign(self.server)
        # x_it <- x - eta_1 [Delta^p Delta^p^T + rho I]^-1 Delta^p (19)
        x.add(own, [-scale * (1 - beta) if moved else 0 for moved, (beta, scale) in zip(moves, steps)])
        x.add(received, [-scale * beta if moved else 0 for moved, (beta, scale) in zip(moves, steps)])
        self.part.put(start, x)
        return start

    def step(self, own_square, product, square):
        """The weight beta of Delta and the factor of Delta^p, (14) to (18)."""
        norms = math.sqrt(own_square) * math.sqrt(square)
        angle = math.acos(min(1.0, max(-1.0, product / norms))) if norms > 0 else math.pi / 2
        beta = 1 - math.exp(-math.exp(-self.lambda_ * (angle - 1)))
        length = max(0.0, (1 - beta) ** 2 * own_square + 2 * (1 - beta) * beta * product + beta ** 2 * square)
        return beta, self.personal_lr / (self.rho + length)

    def evaluate(self, evaluation):
        evaluation.each_block(lambda block: block.evaluate(self.kept.read(block.clients)))

    def visit_state(self, state):
        self.update = state.rows("update", self.update)
        self.server = state.rows("server", self.server)


def main(arguments):
    config = next((one for one in arguments if one.endswith(".ini")), None)
    if config is None:
        sys.exit("pfedsop_start.py CONFIG.ini [START ...] [KEY=VALUE ...]")
    keys = dict(one.split("=", 1) for one in arguments if "=" in one)
    starts = [one for one in arguments if "=" not in one and one != config]
    for start in starts or ["own", "mixture", "server"]:
        results = fedhpc.run(config, force=True, **{**keys, "algorithm.name": "pfedsop_start", "algorithm.start": start,
                                                    "run.output": f"pfedsop_{start}.h5"})
        print(start, results.rounds["best_personal_accuracy"].iloc[-1])


if __name__ == "__main__":
    main(sys.argv[1:])
