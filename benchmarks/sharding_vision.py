"""The vision cases of sharding.py: the cells of their notebook, a random Qwen2-VL with its processor, and pictures."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

LARGE: dict[str, Any] = dict(
    text=dict(hidden_size=3072, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=24,
              num_key_value_heads=8, mrope_section=[16, 24, 24]),
    vision=dict(depth=24, embed_dim=1280, num_heads=16),
    sides=(8, 16),
    words=(40, 120),
)  # fmt: skip
TINY: dict[str, Any] = dict(
    text=dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
              num_key_value_heads=2, mrope_section=[4, 6, 6]),
    vision=dict(depth=2, embed_dim=64, num_heads=2),
    sides=(2, 4),
    words=(4, 12),
)  # fmt: skip
ROWS = 240

LOAD = """\
model, tokenizer = {loader}.from_pretrained(
    "../../vision_model",
    load_in_4bit = {four_bit},
    use_gradient_checkpointing = "unsloth",
)
model = {loader}.get_peft_model(
    model,
    finetune_vision_layers = True,
    finetune_language_layers = True,
    finetune_attention_modules = True,
    finetune_mlp_modules = True,
    r = 16,
    lora_alpha = 16,
    lora_dropout = 0,
    bias = "none",
    random_state = 3407,
)"""

DATA = """\
from datasets import load_dataset
dataset = load_dataset("imagefolder", data_dir = "../../pictures", split = "train")"""

CONVERSATIONS = """\
instruction = "Write the words of this picture."

def convert_to_conversation(number, sample):
    question = [{{"type": "text", "text": instruction}}]
    if number % 5 < {pictures}:
        question.append({{"type": "image", "image": sample["image"]}})
    return {{
        "messages": [
            {{"role": "user", "content": question}},
            {{"role": "assistant", "content": [{{"type": "text", "text": sample["text"]}}]}},
        ]
    }}

converted_dataset = [convert_to_conversation(number, sample) for number, sample in enumerate(dataset)]"""

TRAINER = """\
from unsloth.trainer import UnslothVisionDataCollator
from trl import SFTConfig, SFTTrainer
from watch import Watch

FastVisionModel.for_training(model)
trainer = SFTTrainer(
    model = model,
    processing_class = tokenizer,
    data_collator = UnslothVisionDataCollator(model, tokenizer),
    train_dataset = converted_dataset,
    callbacks = [Watch()],
    args = SFTConfig(
        per_device_train_batch_size = {batch},
        gradient_accumulation_steps = 4,
        warmup_steps = 2,
        max_steps = {steps},
        learning_rate = {rate},
        logging_steps = 1,
        optim = "{optim}",
        seed = 3407,
        output_dir = "outputs",
        save_strategy = "no",
        report_to = "none",
        remove_unused_columns = False,
        dataset_text_field = "",
        dataset_kwargs = {{"skip_prepare_dataset": True}},
        max_length = 2048,
    ),
)"""

SAVE = """\
model.save_pretrained("lora_model")
tokenizer.save_pretrained("lora_model")"""

GENERATE = """\
FastVisionModel.for_inference(model)
messages = [{{"role": "user", "content": [{{"type": "image"}}, {{"type": "text", "text": instruction}}]}}]
input_text = tokenizer.apply_chat_template(messages, add_generation_prompt = True)
inputs = tokenizer(
    dataset[2]["image"],
    input_text,
    add_special_tokens = False,
    return_tensors = "pt",
).to("cuda")
generated = model.generate(**inputs, max_new_tokens = 12, use_cache = True, do_sample = False)
print("generated:", generated[0, -12:].tolist())"""

# Qwen2-VL's own template without tools and videos.
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif 'text' in part %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
]
SPECIAL += ["<|image_pad|>", "<|video_pad|>"]


def cells(values: dict[str, Any]) -> list[str]:
    """Return the cells from the model's to the last, as Unsloth's vision notebooks have them."""
    return [
        LOAD, DATA, CONVERSATIONS, TRAINER, "trainer.train()", SAVE, *([GENERATE] if values["generates"] else []),
    ]  # fmt: skip


def make_model(folder: Path, tiny: bool) -> None:
    """Save a random Qwen2-VL with its processor, and pictures of different sizes with words."""
    if (folder / "vision_model" / "config.json").exists():
        return
    import torch
    from transformers import (
        Qwen2VLConfig,
        Qwen2VLForConditionalGeneration,
        Qwen2VLImageProcessor,
        Qwen2VLProcessor,
        Qwen2VLVideoProcessor,
    )

    size = TINY if tiny else LARGE
    rng = random.Random(0)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(rng.choice(letters) for _ in range(rng.randint(2, 9))) for _ in range(3000)]
    make_pictures(folder / "pictures", rng, words, size)
    tokenizer = make_tokenizer(rng, words)
    token = tokenizer.convert_tokens_to_ids
    text = dict(size["text"])
    mrope = {"rope_type": "default", "mrope_section": text.pop("mrope_section"), "rope_theta": 1e6}
    config = Qwen2VLConfig(
        text_config=dict(
            **text, vocab_size=len(tokenizer), max_position_embeddings=4096, rope_parameters=mrope,
            bos_token_id=token("<|endoftext|>"), eos_token_id=token("<|im_end|>"), pad_token_id=token("<|endoftext|>"),
        ),
        vision_config=dict(**size["vision"], hidden_size=text["hidden_size"]),
        image_token_id=token("<|image_pad|>"), video_token_id=token("<|video_pad|>"),
        vision_start_token_id=token("<|vision_start|>"), vision_end_token_id=token("<|vision_end|>"),
    )  # fmt: skip
    processor = Qwen2VLProcessor(
        Qwen2VLImageProcessor(), tokenizer, Qwen2VLVideoProcessor(), chat_template=TEMPLATE
    )
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cpu" if tiny else "cuda"):
        model = Qwen2VLForConditionalGeneration(config)
    processor.save_pretrained(folder / "vision_model")
    model.save_pretrained(folder / "vision_model")
    tower = sum(value.numel() for name, value in model.named_parameters() if "visual" in name)
    whole = sum(value.numel() for value in model.parameters())
    print(f"vision: {whole / 1e9:.2f} B parameters, {tower / 1e9:.2f} B of them see", flush=True)


def make_pictures(folder: Path, rng: random.Random, words: list[str], size: dict[str, Any]) -> None:
    """Save pictures of coloured rectangles, with rows of text, for the image folders of Datasets."""
    from PIL import Image, ImageDraw

    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for number in range(ROWS):
        width, height = (28 * rng.randint(*size["sides"]) for _ in range(2))
        picture = Image.new("RGB", (width, height), tuple(rng.randrange(256) for _ in range(3)))
        draw = ImageDraw.Draw(picture)
        for _ in range(12):
            left, top = rng.randrange(width), rng.randrange(height)
            corner = (left + rng.randrange(60), top + rng.randrange(60))
            draw.rectangle(((left, top), corner), fill=tuple(rng.randrange(256) for _ in range(3)))
        name = f"{number:04}.png"
        picture.save(folder / name)
        text = " ".join(rng.choice(words) for _ in range(rng.randint(*size["words"])))
        rows.append({"file_name": name, "text": text})
    (folder / "metadata.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def make_tokenizer(rng: random.Random, words: list[str]) -> Any:
    """Return a tokenizer of these words, with Qwen2-VL's special tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator(
        (" ".join(rng.choice(words) for _ in range(100)) for _ in range(500)),
        trainers.BpeTrainer(
            vocab_size=8000,
            special_tokens=SPECIAL,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token="<|im_end|>", pad_token="<|endoftext|>", model_max_length=4096,
        model_input_names=["input_ids", "attention_mask"], additional_special_tokens=SPECIAL[1:],
    )  # fmt: skip
