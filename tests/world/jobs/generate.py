"""generate.py WAY: transformers' generate() on a Llama with random weights: greedy, beams, sampled, static (cache), assisted."""
import seen

torch = seen.start()
import transformers as tf


def _model(layers=2):
    torch.manual_seed(layers)
    config = tf.LlamaConfig(vocab_size=256, hidden_size=128, intermediate_size=256, num_hidden_layers=layers, num_attention_heads=4, num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    return tf.LlamaForCausalLM(config).cuda().eval()


def _say(model, **how):
    told = []
    for n in (4, 9, 17, 30):
        out = model.generate(torch.arange(3, 3 + n)[None].cuda(), max_new_tokens=24, min_new_tokens=24, **how)
        told.append(out[0].tolist()[-5:])
    print(told)
    return []


def greedy():
    return _say(_model(), do_sample=False)


def beams():
    return _say(_model(), do_sample=False, num_beams=4)


def sampled():
    return _say(_model(), do_sample=True, top_k=20, temperature=0.9)


def static():
    return _say(_model(), do_sample=False, cache_implementation="static")


def assisted():
    return _say(_model(), do_sample=False, assistant_model=_model(1))


if __name__ == "__main__":
    run, _ = seen.chosen(seen.every(globals()), __doc__)
    seen.end(run())
