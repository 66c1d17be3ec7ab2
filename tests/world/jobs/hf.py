"""hf.py MODEL [OPTION…]: transformers' own Trainer on a small model made from its config, with random weights and drawn data.

OPTIONs: lora checkpointing accumulate bf16 fp16 workers save resume compile adafactor adam8bit qlora eval benchmark channels_last
"""
import sys

import seen

torch = seen.start()
import numpy as np
import transformers as tf
from torch.utils.data import Dataset

VOCAB = 512


class Drawn(Dataset):
    """Rows drawn from a seed of their own: the same in every run and in every worker."""

    def __init__(self, row, n=256):
        self.row, self.n = row, n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if not 0 <= i < self.n:
            raise IndexError(i)
        return self.row(np.random.default_rng(i))


def _tokens(low=16, high=48, labels=True):
    length = (low + high) // 2

    def row(draw):
        ids = torch.from_numpy(draw.integers(5, VOCAB, length))
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), **({"labels": ids.clone()} if labels else {})}

    return row


def _classified(draw):
    ids = torch.from_numpy(draw.integers(5, VOCAB, 40))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": int(draw.integers(0, 3))}


def _pixels(size, classes=10):
    return lambda draw: {"pixel_values": torch.from_numpy(draw.standard_normal((3, size, size), dtype=np.float32)), "labels": int(draw.integers(0, classes))}


def _llama_like(kind, **more):
    config = dict(
        vocab_size=VOCAB, hidden_size=128, intermediate_size=256, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=128, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )
    return getattr(tf, kind + "ForCausalLM")(getattr(tf, kind + "Config")(**config, **more)), _tokens()


def bert():
    config = tf.BertConfig(vocab_size=VOCAB, hidden_size=128, num_hidden_layers=3, num_attention_heads=4, intermediate_size=256)
    return tf.BertForMaskedLM(config), _tokens()


def bert_classify():
    config = tf.BertConfig(vocab_size=VOCAB, hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256, num_labels=3)
    return tf.BertForSequenceClassification(config), _classified


def distilbert():
    return tf.DistilBertForSequenceClassification(tf.DistilBertConfig(vocab_size=VOCAB, dim=128, n_layers=2, n_heads=4, hidden_dim=256, num_labels=3)), _classified


def gpt2():
    return tf.GPT2LMHeadModel(tf.GPT2Config(vocab_size=VOCAB, n_embd=128, n_layer=3, n_head=4, n_positions=128, bos_token_id=1, eos_token_id=2)), _tokens()


def llama():
    return _llama_like("Llama")


def qwen_moe():
    return _llama_like("Qwen2Moe", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64, shared_expert_intermediate_size=64)


def gemma():
    return _llama_like("Gemma", head_dim=32)


def mamba():
    return tf.MambaForCausalLM(tf.MambaConfig(vocab_size=VOCAB, hidden_size=64, state_size=8, num_hidden_layers=2)), _tokens()


def t5():
    config = tf.T5Config(vocab_size=VOCAB, d_model=128, d_kv=32, d_ff=256, num_layers=2, num_heads=4, decoder_start_token_id=0)
    return tf.T5ForConditionalGeneration(config), _tokens()


def bart():
    config = tf.BartConfig(vocab_size=VOCAB, d_model=128, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
                           encoder_ffn_dim=256, decoder_ffn_dim=256, max_position_embeddings=128)
    return tf.BartForConditionalGeneration(config), _tokens()


def vit():
    config = tf.ViTConfig(hidden_size=128, num_hidden_layers=3, num_attention_heads=4, intermediate_size=256, image_size=64, patch_size=16, num_labels=10)
    return tf.ViTForImageClassification(config), _pixels(64)


def convnext():
    return tf.ConvNextForImageClassification(tf.ConvNextConfig(hidden_sizes=[16, 32, 64, 128], depths=[1, 1, 2, 1], image_size=64, num_labels=10)), _pixels(64)


def resnet():
    config = tf.ResNetConfig(embedding_size=16, hidden_sizes=[16, 32, 64, 128], depths=[1, 1, 1, 1], layer_type="basic", num_labels=10)
    return tf.ResNetForImageClassification(config), _pixels(64)


def segformer():
    config = tf.SegformerConfig(num_labels=5, depths=[1, 1, 1, 1], hidden_sizes=[16, 32, 64, 128], decoder_hidden_size=64)

    def row(draw):
        return {"pixel_values": torch.from_numpy(draw.standard_normal((3, 64, 64), dtype=np.float32)), "labels": torch.from_numpy(draw.integers(0, 5, (64, 64)))}

    return tf.SegformerForSemanticSegmentation(config), row


def whisper():
    config = tf.WhisperConfig(
        vocab_size=VOCAB, d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=128,
        decoder_ffn_dim=128, max_source_positions=100, max_target_positions=64, num_mel_bins=16, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None,
    )

    def row(draw):
        return {"input_features": torch.from_numpy(draw.standard_normal((16, 200), dtype=np.float32)), "labels": torch.from_numpy(draw.integers(5, VOCAB, 20))}

    return tf.WhisperForConditionalGeneration(config), row


def wav2vec2():
    config = tf.Wav2Vec2Config(
        vocab_size=32, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, conv_dim=(32, 32, 32), conv_stride=(5, 4, 4),
        conv_kernel=(10, 8, 4), num_feat_extract_layers=3, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, apply_spec_augment=False,
    )

    def row(draw):
        return {"input_values": torch.from_numpy(draw.standard_normal(4000, dtype=np.float32)), "labels": torch.from_numpy(draw.integers(1, 32, 8))}

    return tf.Wav2Vec2ForCTC(config), row


def clip():
    text = dict(vocab_size=VOCAB, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, eos_token_id=2, bos_token_id=1)
    config = tf.CLIPConfig(text_config=text, vision_config=dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, image_size=64, patch_size=16))

    def row(draw):
        ids = torch.from_numpy(draw.integers(5, VOCAB, 16))
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "pixel_values": torch.from_numpy(draw.standard_normal((3, 64, 64), dtype=np.float32)), "return_loss": True}

    return tf.CLIPModel(config), row


def _joined(rows):
    """The library's own collator, but for a flag that is no tensor."""
    flags = {k for k, v in rows[0].items() if isinstance(v, bool)}
    batch = tf.default_data_collator([{k: v for k, v in r.items() if k not in flags} for r in rows])
    return {**batch, **{k: rows[0][k] for k in flags}}


def _prepared(make, options):
    model, row = make()
    if "qlora" in options:
        from peft import prepare_model_for_kbit_training

        model.save_pretrained("base")
        bits = tf.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
        model = prepare_model_for_kbit_training(tf.AutoModelForCausalLM.from_pretrained("base", quantization_config=bits, device_map={"": 0}))
    if {"lora", "qlora"} & options:
        from peft import LoraConfig, get_peft_model

        names = ["q_proj", "v_proj"] if make.__name__ != "vit" else "all-linear"
        model = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, target_modules=names))
        if "checkpointing" in options:
            model.enable_input_require_grads()
    if "channels_last" in options:
        model = model.to(memory_format=torch.channels_last)
    return model, row


def main(make, options):
    torch.backends.cudnn.benchmark = "benchmark" in options
    model, row = _prepared(make, options)
    told = dict(
        output_dir="out", max_steps=24, per_device_train_batch_size=8, logging_steps=1, report_to=[], seed=0, learning_rate=1e-4, disable_tqdm=True,
        bf16="bf16" in options, fp16="fp16" in options, gradient_checkpointing="checkpointing" in options, remove_unused_columns=False,
        gradient_accumulation_steps=2 if "accumulate" in options else 1, dataloader_num_workers=2 if "workers" in options else 0,
        dataloader_persistent_workers="workers" in options, torch_compile="compile" in options,
        save_strategy="steps" if {"save", "resume"} & options else "no", save_steps=8, save_total_limit=2,
    )
    if "adafactor" in options:
        told["optim"] = "adafactor"
    if "adam8bit" in options:
        told["optim"] = "adamw_bnb_8bit"
    if "eval" in options:
        told.update(eval_strategy="steps", eval_steps=8, per_device_eval_batch_size=8)
    if "resume" in options:
        told["max_steps"] = 16
    evaluation = Drawn(row, 32) if "eval" in options else None

    def trainer():
        return tf.Trainer(model=model, args=tf.TrainingArguments(**told), train_dataset=Drawn(row), eval_dataset=evaluation, data_collator=_joined)

    t = trainer()
    t.train()
    if "resume" in options:
        told["max_steps"] = 24
        t = trainer()
        t.train(resume_from_checkpoint=True)
    history = [h.get("loss", h.get("eval_loss")) for h in t.state.log_history]
    seen.end([h for h in history if h is not None], steps=t.state.global_step)


if __name__ == "__main__":
    made, options = seen.chosen({k: v for k, v in seen.every(globals()).items() if k not in ("main", "Drawn")}, __doc__)
    unknown = set(options) - set(__doc__.split("OPTIONs:")[1].split())
    if unknown:
        sys.exit(f"no such option: {' '.join(sorted(unknown))}")
    main(made, set(options))
