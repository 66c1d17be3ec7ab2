"""A training that keeps 1 MiB for each batch, two of which are a step: with the callback it is judged as without.

    alike.py transformers|trl|lightning [callback]

transformers' Trainer, and TRL's for fine-tuning, train a LoRA adapter of PEFT's.
"""

import sys

import common
import torch

library, callbacks = sys.argv[1], []
STEPS = 20

if library in ("transformers", "trl"):
    from peft import LoraConfig, get_peft_model
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    if "callback" in sys.argv:
        from strandline.transformers import StrandlineCallback

        callbacks = [StrandlineCallback()]
    rows = [{"input_ids": torch.arange(i, i + 16) % 64, "labels": torch.arange(i, i + 16) % 64} for i in range(32)]
    config = GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(config)
    adapter = LoraConfig(r=4, target_modules=["c_attn"], fan_in_fan_out=True, task_type="CAUSAL_LM")
    told = dict(
        max_steps=STEPS,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        report_to=[],
        disable_tqdm=True,
        logging_steps=4,
        save_strategy="no",
    )
    if library == "transformers":
        model = get_peft_model(model, adapter)
        trainer = Trainer(model, TrainingArguments("out", **told), train_dataset=rows, callbacks=callbacks)
    else:
        from datasets import Dataset
        from datasets.table import InMemoryTable
        from tokenizers import Tokenizer, models
        from transformers import PreTrainedTokenizerFast
        from trl import SFTConfig, SFTTrainer

        numbers = [{"input_ids": row["input_ids"].tolist()} for row in rows]
        words = Tokenizer(models.WordLevel({str(i): i for i in range(64)}, unk_token="0"))
        trainer = SFTTrainer(
            model,
            SFTConfig("out", bf16=False, max_length=16, dataset_kwargs={"skip_prepare_dataset": True}, **told),
            train_dataset=Dataset(InMemoryTable.from_pylist(numbers), fingerprint="counted"),
            processing_class=PreTrainedTokenizerFast(tokenizer_object=words, pad_token="0", eos_token="0"),
            peft_config=adapter,
            callbacks=callbacks,
        )
    trainer.model.register_forward_hook(lambda module, _, output: common.keep(1))
    trainer.train()
else:
    import lightning.pytorch as pl

    if "callback" in sys.argv:
        from strandline.lightning import StrandlineCallback

        callbacks = [StrandlineCallback()]

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = torch.nn.Linear(16, 16)

        def training_step(self, batch, index):
            common.keep(1)
            return self.model(batch).square().mean()

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    batches = torch.utils.data.DataLoader(torch.randn(32, 16), batch_size=2)
    pl.Trainer(
        accelerator="gpu",
        devices=1,
        max_steps=STEPS,
        accumulate_grad_batches=2,
        callbacks=callbacks,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    ).fit(Module(), batches)
