"""Ditto in Python: the bits of algorithm.name = ditto (T. Li et al., ICML 2021, Algorithm 1)."""

import fedhpc


@fedhpc.algorithm("ditto_py", "Ditto, written in Python (T. Li et al., ICML 2021)")
class Ditto(fedhpc.Algorithm):
    models = "both"
    can_leave_rounds = True

    def declare(self, options):
        options.add("mu", 0.1, at_least=0, help="weight of the term mu/2 ||v - w_t||^2")
        options.averaging(payloads="changes")

    def initialise(self, setup):
        self.model = setup.initial_model()
        self.codec = setup.open_links(self.model)
        self.personal = setup.store.rows("personal", self.model)

    def round(self, round):
        update = round.mean()
        for block in round.blocks():
            start = block.download(self.model)
            trained = block.train(start, pass_=0)
            block.keep_buffers(trained)
            update.add(block.weights(self.weighting), block.upload(trained - start, self.codec))
            personal = self.personal.read(block.clients)
            block.keep(self.personal, block.train(personal, pass_=0, mu=self.mu, centre=start))
        self.model += update.reduce()

    def evaluate(self, evaluation):
        evaluation.global_model(self.model)
        evaluation.each_block(lambda block: block.evaluate(self.personal.read(block.clients)))

    def visit_state(self, state):
        self.model = state.rows("global", self.model)
