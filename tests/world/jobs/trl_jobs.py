"""trl_jobs.py TRAINER [lora] [accumulate] [checkpointing]: TRL's own trainers on a two-layer Llama with random weights and a tokenizer made in place.

`offload` (no `datasets` needed): transformers' Trainer with TRL's OffloadActivations around each step.
"""
import glob
import importlib.util
import os
import sys

import seen

torch = seen.start()
if importlib.util.find_spec("trl") is None and os.environ.get("WORLD_TRL"):  # a wheel, read where it lies
    sys.path.insert(0, sorted(glob.glob(os.environ["WORLD_TRL"]))[-1])
import transformers as tf

WORDS = "the a cat dog runs sleeps and then it sees one more small big red blue tree house by near under over user assistant yes no maybe".split()
CHAT = "{% for m in messages %}{{ '<u> ' if m['role'] == 'user' else '<a> ' }}{{ m['content'] }} </s> {% endfor %}{% if add_generation_prompt %}<a> {% endif %}"


def _tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers

    names = ["<pad>", "<s>", "</s>", "<unk>", "<u>", "<a>", *WORDS]
    made = Tokenizer(models.WordLevel({w: i for i, w in enumerate(names)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    t = tf.PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    t.chat_template = CHAT
    t.padding_side = "left"
    return t


def _config(**more):
    return tf.LlamaConfig(
        vocab_size=len(WORDS) + 6, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=256, pad_token_id=0, bos_token_id=1, eos_token_id=2, **more,
    )


def _sentence(i, n):
    return " ".join(WORDS[(i * 7 + k * k) % len(WORDS)] for k in range(n))


def _rows(row, n=64):
    return seen.rows([row(i) for i in range(n)])


def _peft(options):
    if "lora" not in options:
        return None
    from peft import LoraConfig

    return LoraConfig(r=8, target_modules=["q_proj", "v_proj"])


def _told(options, **more):
    return dict(
        output_dir="out", max_steps=12, per_device_train_batch_size=4, logging_steps=1, report_to=[], disable_tqdm=True, save_strategy="no", seed=0, bf16=False,
        gradient_checkpointing="checkpointing" in options, gradient_accumulation_steps=2 if "accumulate" in options else 1, **more,
    )


def _run(trainer):
    trainer.train()
    history = trainer.state.log_history
    seen.end([h["loss"] for h in history if "loss" in h], steps=trainer.state.global_step)


def sft(options):
    from trl import SFTConfig, SFTTrainer

    rows = _rows(lambda i: {"text": _sentence(i, 8 + i % 24)})
    told = _told(options, max_length=64, packing="packing" in options, activation_offloading="activations" in options)
    _run(SFTTrainer(tf.LlamaForCausalLM(_config()), args=SFTConfig(**told), train_dataset=rows, processing_class=_tokenizer(), peft_config=_peft(options)))


def _preferred(i):
    return {"prompt": _sentence(i, 5), "chosen": " " + _sentence(i + 3, 6 + i % 5), "rejected": " " + _sentence(i + 11, 9 - i % 4)}


def dpo(options):
    from trl import DPOConfig, DPOTrainer

    reference = None if "lora" in options else tf.LlamaForCausalLM(_config())
    told = _told(options, max_length=64)
    _run(DPOTrainer(tf.LlamaForCausalLM(_config()), reference, args=DPOConfig(**told), train_dataset=_rows(_preferred), processing_class=_tokenizer(), peft_config=_peft(options)))


def kto(options):
    try:
        from trl import KTOConfig, KTOTrainer
    except ImportError:
        from trl.experimental.kto import KTOConfig, KTOTrainer
    rows = _rows(lambda i: {"prompt": _sentence(i, 5), "completion": " " + _sentence(i + 3, 8), "label": i % 2 == 0})
    told = _told(options, max_length=64)
    _run(KTOTrainer(tf.LlamaForCausalLM(_config()), tf.LlamaForCausalLM(_config()), args=KTOConfig(**told), train_dataset=rows, processing_class=_tokenizer(), peft_config=_peft(options)))


def reward(options):
    from trl import RewardConfig, RewardTrainer

    told = _told(options, max_length=64)
    model = tf.LlamaForSequenceClassification(_config(num_labels=1))
    _run(RewardTrainer(model, args=RewardConfig(**told), train_dataset=_rows(_preferred), processing_class=_tokenizer(), peft_config=_peft(options)))


def _prompts():
    return _rows(lambda i: {"prompt": _sentence(i, 5)})


def _policy():
    """A policy that lies in a folder, as TRL loads its reference from there once more."""
    tf.LlamaForCausalLM(_config()).save_pretrained("base")
    return tf.LlamaForCausalLM.from_pretrained("base")


def _lengths(completions, **_):
    return [float(len(str(c).split()) % 7) for c in completions]


def grpo(options):
    from trl import GRPOConfig, GRPOTrainer

    told = _told(options, num_generations=4, max_completion_length=12, beta=0.01)
    _run(GRPOTrainer(_policy(), reward_funcs=_lengths, args=GRPOConfig(**told), train_dataset=_prompts(), processing_class=_tokenizer(), peft_config=_peft(options)))


def rloo(options):
    from trl import RLOOConfig, RLOOTrainer

    told = _told(options, num_generations=4, max_completion_length=12)
    _run(RLOOTrainer(_policy(), reward_funcs=_lengths, args=RLOOConfig(**told), train_dataset=_prompts(), processing_class=_tokenizer(), peft_config=_peft(options)))


def offload(options):
    """TRL #5700 leaks with a vision model; a text model is the healthy twin."""
    import trl.models.activation_offloading as offloading

    class Offloading(tf.Trainer):
        def training_step(self, *a, **k):
            with offloading.OffloadActivations():
                return super().training_step(*a, **k)

    rows = [{"input_ids": (ids := torch.arange(32) * (i + 1) % 30), "labels": ids} for i in range(64)]
    args = tf.TrainingArguments(**_told(options))
    _run(Offloading(tf.LlamaForCausalLM(_config()), args, train_dataset=rows, data_collator=tf.default_data_collator))


if __name__ == "__main__":
    run, options = seen.chosen(seen.every(globals()), __doc__)
    run(set(options))
