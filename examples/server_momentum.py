"""FedAvgM in Python: the server moves by momentum on the mean update of its clients.

Hsu, Qi, Brown: "Measuring the Effects of Non-Identical Data Distribution for Federated Visual
Classification", 2019.

    python3 examples/server_momentum.py
"""

import fedhpc


@fedhpc.algorithm("fedavgm_py", "FedAvg with momentum of the server (Hsu et al., 2019)")
class FedAvgM(fedhpc.Algorithm):
    can_leave_rounds = True

    def declare(self, options):
        options.add("server_momentum", 0.9, at_least=0, below=1, help="beta of the server; 0: FedAvg")
        options.averaging()

    def initialise(self, setup):
        self.model = setup.initial_model()                     # [1, P]  w
        self.velocity = self.model.zeros()                     # [1, P]  v

    def round(self, round):
        update = round.mean()
        for block in round.blocks():
            start = block.download(self.model)
            trained = block.train(start)
            block.keep_buffers(trained)
            update.add(block.weights(self.weighting), block.upload(trained - start, self.codec))
        step = update.reduce()
        self.velocity.scale(self.server_momentum)
        self.velocity.copy_columns(self.model.zeros(), "buffer")   # statistics are averaged, and have no momentum
        self.velocity += step                                  # v <- beta v + sum_k n_k/n (w_k - w)
        self.model += self.velocity                            # w <- w + v

    def evaluate(self, evaluation):
        evaluation.global_model(self.model)

    def visit_state(self, state):
        self.model = state.rows("model", self.model)
        self.velocity = state.rows("velocity", self.velocity)


if __name__ == "__main__":
    results = fedhpc.run({"algorithm.name": "fedavgm_py", "run.rounds": 10, "run.output": "fedavgm_py.h5"})
    print(results.rounds[["train_loss", "global_accuracy"]])
