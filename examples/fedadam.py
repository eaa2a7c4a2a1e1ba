"""FedAdam in Python: the server takes the mean update of its clients as a gradient for Adam.

Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan: "Adaptive Federated Optimization", ICLR 2021,
Algorithm 2, with the bias correction of Adam and a linear warm-up of the server's rate, as pfl-research has it.

    python3 examples/fedadam.py
"""

import numpy as np

import fedhpc


@fedhpc.algorithm("fedadam_py", "FedAvg with Adam at the server (Reddi et al., ICLR 2021)")
class FedAdam(fedhpc.Algorithm):
    can_leave_rounds = True

    def declare(self, options):
        options.add("server_lr", 0.1, at_least=0, help="eta of the server")
        options.add("beta1", 0.9, at_least=0, below=1, help="decay of the first moment m")
        options.add("beta2", 0.99, at_least=0, below=1, help="decay of the second moment v")
        options.add("epsilon", 0.01, above=0, help="tau, which is added to sqrt(v)")
        options.add("warm_up", 0, at_least=0, help="rounds in which the server's rate grows from 0")
        options.averaging()

    def initialise(self, setup):
        self.model = setup.initial_model()                     # [1, P]  x
        self.first = self.model.zeros()                        # [1, P]  m
        self.second = self.model.zeros()                       # [1, P]  v

    def round(self, round):
        update = round.mean()
        for block in round.blocks():
            start = block.download(self.model)
            trained = block.train(start)
            block.keep_buffers(trained)
            update.add(block.weights(self.weighting), block.upload(trained - start, self.codec))
        step = update.reduce()                                 # [1, P]  Delta
        buffers = self.model + step                            # statistics are averaged
        delta = np.array(step.values)
        t = round.number                                       # from 1
        m = self.beta1 * np.array(self.first.values) + (1 - self.beta1) * delta
        v = self.beta2 * np.array(self.second.values) + (1 - self.beta2) * delta ** 2
        self.first, self.second = step.like(m), step.like(v)
        rate = self.server_lr * min(1.0, (t - 1) / self.warm_up if self.warm_up else 1.0)
        root = np.sqrt(v / (1 - self.beta2 ** t)) + self.epsilon
        self.model += step.like(rate * m / (1 - self.beta1 ** t) / root)
        self.model.copy_columns(buffers, "buffer")

    def evaluate(self, evaluation):
        evaluation.global_model(self.model)

    def visit_state(self, state):
        self.model = state.rows("model", self.model)
        self.first = state.rows("first", self.first)
        self.second = state.rows("second", self.second)


if __name__ == "__main__":
    results = fedhpc.run({"algorithm.name": "fedadam_py", "algorithm.server_lr": 0.01, "run.rounds": 10,
                          "run.output": "fedadam_py.h5"})
    print(results.rounds[["train_loss", "global_accuracy"]])
